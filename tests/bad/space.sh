#!/bin/bash
# SPDX-License-Identifier: MIT
# No place for the journal, no space for the commit: the real error, nothing changed in the file, the stores kept,
# and the same commit succeeds when there is space.
. "$(dirname "$0")/lib.sh"

t_journal_place() {
	make_file a.dat x 8192
	local dirs
	for dirs in "missing:ENOENT" "file:ENOTDIR" "closed:EACCES"; do
		local place=$dir/j-${dirs%:*} want=${dirs#*:}
		case $dirs in
		file:*) : >"$place" ;;
		closed:*) [ "$who" = ordinary ] || continue; mkdir -m 755 "$place" ;;
		esac
		claim "the journal's directory is $dirs"
		set="journal=$place"
		start
		order "open $dir/a.dat" ok; order 'map 0' "$want"
		errs "$dir/a.dat: journal $place/.*: $want"
		order "open $dir/a.dat ro" ok; order 'map 0 ro' "ok|ENOTDIR"
		[ "$answer" != ok ] || order 'load 0 4' xxxx
		stop; is 0
		set="journal=$place on_error=passthrough"
		start
		order "open $dir/a.dat" ok; order 'map 0' ok
		errs 'a.dat: NOT managed.*on_error=passthrough'
		order 'store 0 y' ok; holds a.dat yxxx; order 'store 0 x' ok
		stop; is 0
	done
	set="journal=$dir"
	claim 'in a directory it is found again'
	start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 new' ok; order msync ok
	killed
	[ -n "$(ls -A | grep '^\.a.dat-.*txmap$')" ] || bad "no journal: $(ls -A)"
	start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'load 0 3' new; stop
	[ -z "$(ls -A | grep txmap)" ] || bad "left: $(ls -A)"
}

# Fill $dir/full but for $1 KiB; sets $filler.
fill_up() {
	rm -f full/filler
	local free
	free=$(df --output=avail -k full | tail -1)
	[ "$free" -le "$1" ] || fallocate -l $(((free - $1) * 1024)) full/filler 2>/dev/null ||
		head -c $(((free - $1) * 1024)) /dev/zero >full/filler 2>/dev/null
}

disk_full() { # file system $1; the file is elsewhere when $2 is: then only the journal is on the full one
	claim "$1 is full at the commit${2:+, the file elsewhere}"
	local file=$dir/full/a.dat beside=$dir/full
	[ -z "${2:-}" ] || file=$dir/a.dat
	set="journal=$beside"
	make_file "$file" x 4M
	start
	order "open $file" ok; order 'map 0' ok
	order 'store 0 one' ok; order msync ok; holds "$file" onex
	fill_up 8
	sum=$(sha256sum <"$file")
	order 'fill 0 3M y' ok
	order msync ENOSPC
	errs "$file: .*ENOSPC"
	[ "$(sha256sum <"$file")" = "$sum" ] || bad 'the file changed'
	order 'same 0 3M' y
	order fsync ENOSPC
	txmap commit "$pid"; is 1; errs 'ENOSPC'
	order 'store 0 zz' ok
	[ "$(sha256sum <"$file")" = "$sum" ] || bad 'the file changed'
	rm full/filler
	claim "$1 has space again: the stores are still there${2:+, the file elsewhere}"
	order msync ok
	holds "$file" zzyyyy; holds "$file" yyyyxxxx $((3 * 1024 * 1024 - 4))
	killed
	start; order "open $file" ok; order 'map 0' ok; order 'load 0 4' zzyy; order 'same 4096 3000K' y

	claim "$1 is full at the exit${2:+, the file elsewhere}: told, and the file is the last commit"
	fill_up 8
	sum=$(sha256sum <"$file")
	order 'fill 0 3M w' ok
	stop
	errs "$file: .*ENOSPC"
	rm full/filler
	[ "$(sha256sum <"$file")" = "$sum" ] || {
		txmap recover "$file"; [ "$(sha256sum <"$file")" = "$sum" ] || bad 'the file is not the last commit'; }
	rm -f "$file" full/.*.txmap

	claim "$1 is full already when the file is opened${2:+, the file elsewhere}"
	make_file "$file" x 64K
	fill_up 0
	start
	order "open $file" ok; order 'map 0' 'ENOSPC|ok'
	if [ "$answer" = ok ]; then
		order 'store 0 y' ok; order msync 'ok|ENOSPC'
		[ "$answer" = ok ] && holds "$file" yxxx || holds "$file" xxxx
		stop
	else
		errs "$file: .*ENOSPC"
		rm full/filler
		: >"$err_from"
		order 'map 0' ok; order 'store 0 y' ok; order msync ok; holds "$file" yxxx
		stop; silent
	fi
	rm -f full/filler "$file"
}

t_disk_full() {
	[ "$(id -u)" = 0 ] || { echo 'disk full: not tried without root'; return; }
	mkdir full
	mount_or_skip -t tmpfs -o size=12m tmpfs "$dir/full" || return
	chmod 777 full
	disk_full tmpfs
	disk_full tmpfs elsewhere
	umount full
	command -v mkfs.ext4 >/dev/null || { echo 'ext4: no mkfs.ext4'; return; }
	truncate -s 24M "$work/ext4.img"
	mkfs.ext4 -q -F -m 0 "$work/ext4.img" || return
	mount_or_skip -o loop "$work/ext4.img" "$dir/full" || return
	chmod 777 full
	disk_full ext4
	disk_full ext4 elsewhere
	umount full
}

t_start_over() {
	claim 'commits larger than a frame on a small disk: the journal starts over where its end does not fit'
	[ "$(id -u)" = 0 ] || return
	mkdir full
	mount_or_skip -t tmpfs -o size=12m tmpfs "$dir/full" || return
	chmod 777 full
	set="journal=$dir/full"
	make_file a.dat x 4M
	start
	order "open $dir/a.dat" ok; order 'map 0' ok
	local i
	for i in a b c d e f g h; do
		order "fill 0 3M $i" ok; order msync ok
		holds a.dat "$i$i$i"
	done
	stop; is 0; silent
	umount full
}

t_holes() {
	claim 'commits into the holes of a sparse file on a full disk, the journal elsewhere'
	[ "$(id -u)" = 0 ] || return
	mkdir full
	mount_or_skip -t tmpfs -o size=4m tmpfs "$dir/full" || return
	chmod 777 full
	set="journal=$dir"
	truncate -s 64M full/a.dat; chmod 666 full/a.dat
	start
	order "open $dir/full/a.dat" ok; order 'map 0' ok
	local i
	for i in $(seq 0 400); do order "store $((i * 131072)) new" ok; done
	fill_up 64
	order msync 'ok|ENOSPC'
	local was=$answer
	for i in 0 200 400; do order "load $((i * 131072)) 3" new; done
	[ "$was" = ok ] || txmap status --json "$pid"
	rm full/filler
	order 'store 0 two' ok
	order msync ok
	for i in 1 200 400; do holds full/a.dat new $((i * 131072)); done
	holds full/a.dat two
	fill_up 64
	for i in $(seq 0 400); do order "store $((i * 131072 + 65536)) dot" ok; done
	order msync 'ok|ENOSPC'
	was=$answer
	killed # with the commit in the journal, or without it
	rm full/filler
	txmap recover --set "journal=$dir" full/a.dat; is 0
	for i in 1 200 400; do
		if [ "$was" = ok ]; then holds full/a.dat dot $((i * 131072 + 65536)); else holds full/a.dat ... $((i * 131072 + 65536)); fi
	done
	umount full
}

t_growth() {
	claim 'a file that is to grow on a full disk: the size comes back, the commit before stays'
	[ "$(id -u)" = 0 ] || return
	mkdir full
	mount_or_skip -t tmpfs -o size=8m tmpfs "$dir/full" || return
	chmod 777 full
	make_file full/a.dat x 64K
	start
	order "open $dir/full/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok; order msync ok
	fill_up 16
	order 'truncate 4M' ok; order size 4194304
	order 'map 4M' ok; order 'fill 0 4M z' ok
	order msync ENOSPC
	[ "$(stat -c %s full/a.dat)" = 65536 ] || bad "the file has size $(stat -c %s full/a.dat)"
	holds full/a.dat onexxx
	rm full/filler
	order msync 'ok|ENOSPC' # the journal and the file each want 4M: that fits or not
	if [ "$answer" = ok ]; then holds full/a.dat zzzz; else holds full/a.dat onex; fi
	txmap discard "$pid"; is 0
	killed
	umount full
}

t_reserve() {
	claim 'space that is reserved through the descriptor is there, or it is ENOSPC and nothing has changed'
	[ "$(id -u)" = 0 ] && command -v python3 >/dev/null || return
	mkdir full
	mount_or_skip -t tmpfs -o size=4m tmpfs "$dir/full" || return
	chmod 777 full
	make_file full/a.dat x 64K
	under python3 -c '
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(fd, 0); m[0:3] = b"one"
try: os.posix_fallocate(fd, 0, 64 << 20)
except OSError as e: print(e.errno, os.fstat(fd).st_size)
os.posix_fallocate(fd, 0, 1 << 20)
print("size", os.fstat(fd).st_size, "there", os.statvfs(sys.argv[1]).f_bavail < 800)
m.flush()' "$dir/full/a.dat"
	is 0; silent
	says '^28 65536$'; says '^size 1048576 there True$'
	holds full/a.dat onexx; [ "$(stat -c %s full/a.dat)" = 1048576 ] || bad "its size is $(stat -c %s full/a.dat)"
	umount full
}

t_fsize() {
	claim 'RLIMIT_FSIZE at a commit: an error, no SIGXFSZ, nothing changed'
	make_file a.dat x 1M
	settings
	local n
	(ulimit -f 1500; start_limited) || failed=1
}
start_limited() { # in a subshell with the limit
	start
	order "open $dir/a.dat" ok
	order 'map 0' 'ok|EFBIG'
	if [ "$answer" = ok ]; then
		order 'store 0 one' ok; order msync 'ok|EFBIG'
		order 'fill 0 1M y' ok
		order msync 'ok|EFBIG'
		if [ "$answer" = EFBIG ]; then errs 'a.dat: .*EFBIG'; fi
		order 'same 0 1M' y
	fi
	killed
	run env TXMAP_RUNTIME_DIR="$runtime" "$txmap" recover a.dat
	is 0
	[ $failed = 0 ]
}

each_user t_journal_place
each t_disk_full
each t_start_over
each t_holes
each t_growth
each t_reserve
each t_fsize
exit $failed
