#!/bin/bash
# SPDX-License-Identifier: MIT
# fio with ioengine=mmap writes blocks that carry their checksums, and a second fio finds all of them good: through a
# mapping and through pread, under txmap and without. Its blocks hold the time, so bytes cannot be compared.
. "$(dirname "$0")/lib.sh"
need fio

job='--name=f --filename=f.dat --size=8m --bs=4k --verify=crc32c --output=/dev/null'
t_randwrite() {
	# shellcheck disable=SC2086 # a list of options
	run fio $job --ioengine=mmap --rw=randwrite --do_verify=0 --fsync=50
	for engine in mmap psync; do
		# shellcheck disable=SC2086
		run fio $job --ioengine=$engine --rw=randwrite --verify_only
		# shellcheck disable=SC2086
		plain fio $job --ioengine=$engine --rw=randwrite --verify_only
	done
}
same randwrite
done_same
