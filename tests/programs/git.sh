#!/bin/bash
# SPDX-License-Identifier: MIT
# git maps its packs and its index private, renames lock files over what they lock, and writes packs that it then reads.
. "$(dirname "$0")/lib.sh"
need git

export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=c \
	GIT_COMMITTER_EMAIL=c@d GIT_AUTHOR_DATE='2024-01-02 03:04:05 +0000' GIT_COMMITTER_DATE='2024-01-02 03:04:05 +0000'
t_repository() {
	run git -c init.defaultBranch=main init -q r
	for i in 1 2 3 4; do
		plain sh -c "for f in 1 2 3 4 5; do seq \$((f * $i)) \$((f * 1000)) >r/f\$f; done"
		run git -C r add .
		run git -C r commit -q -m "number $i"
		[ $i != 2 ] || run git -C r repack -adq
	done
	run git -C r branch other HEAD~2
	run git -C r pack-refs --all
	run git -C r gc -q
	run git -C r diff --stat HEAD~3
	run git -C r blame -s f3 | sha256sum
	run git -C r checkout -q other
	run git -C r merge -q main
	run git -C r status --short
	run git clone -q r s
	run git -C s fsck --full --strict
	plain git -C s fsck --full --strict
	plain git -C s log --format='%H %s'
	plain git -C r cat-file --batch-check --batch-all-objects
	plain git -C r status --short
	bytes s/f1 s/f5
}
same repository
done_same
