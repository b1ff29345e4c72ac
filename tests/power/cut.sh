#!/bin/bash
# SPDX-License-Identifier: MIT
# Power cuts of a whole file system: a program commits numbered versions in an image that is mounted by a loop device;
# meanwhile the image is copied, again and again. Each copy is mounted (the file system replays its own journal),
# recovered by `txmap recover`, and must hold one whole version: at least the last one whose msync had returned
# before the copy, at most the one that was on its way after it.
#
#	tests/power/cut.sh ext4|xfs|btrfs [CUTS [group]]
#
# What a copy is: the image lies on an XFS of its own, and is cloned there (FICLONE), which is one instant of it:
# all that the loop device had written until then, and nothing after. So this shows the order in which the file
# system hands writes and flushes to the disk, its journal replay, sizes, directory entries, and our recovery
# on top of that. What it does not show: a disk that loses or reorders what it was given and not yet told to flush:
# everything that had been written is in the copy. That is the crash explorer's part (tests/explore). A plain cp
# would be no instant at all: its end is younger than its begin, and no power cut leaves such a disk.
set -u
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
fs=$1 cuts=${2:-100} scope=${3:-file}
lib_begin "power-$fs-$scope"
lib_dir self run
ledger=$top/build/tests/power/ledger
[ "$(id -u)" = 0 ] || { echo 'not root: nothing can be mounted'; exit 77; }
for tool in mkfs.xfs "mkfs.$fs"; do
	command -v "$tool" >/dev/null || { echo "no $tool here"; exit 77; }
done

pid=
power_end() {
	[ -z "$pid" ] || kill -9 "$pid"
	exec 3<&-
	cd / && umount -l "$work/fs" "$work/copy" "$work/host" 2>/dev/null
	lib_end
} 2>/dev/null
trap power_end EXIT

mkdir "$work/host" "$work/fs" "$work/copy"
truncate -s 4G "$work/host.img"
mkfs.xfs -q -m reflink=1 "$work/host.img" || lib_die 'mkfs.xfs'
mount -o loop "$work/host.img" "$work/host" 2>/dev/null || { echo 'loop devices cannot be mounted here'; exit 77; }
image=$work/host/image
case $fs in
ext4) truncate -s 64M "$image" && mkfs.ext4 -q -F "$image" ;;
xfs) truncate -s 320M "$image" && mkfs.xfs -q "$image" ;;
btrfs) truncate -s 256M "$image" && mkfs.btrfs -q "$image" ;;
esac || lib_die "mkfs.$fs"
mount -o loop "$image" "$work/fs" || lib_die "mount of $fs"
names=(a)
[ "$scope" != group ] || names=(a b c)
for n in "${names[@]}"; do : >"$work/fs/$n"; done
sync -f "$work/fs"

cat >"$work/conf" <<CONF
[rule ledger]
path = $work/fs/*
scope = $scope
CONF

# ---- it runs, and the image is copied

mkfifo "$work/pipe"
(
	cd "$work/fs" || exit 1
	exec env LD_PRELOAD="$so" TXMAP_CONFIG="$work/conf" TXMAP_RUNTIME_DIR="$runtime" \
		"$ledger" write "${names[@]}" >"$work/pipe" 2>"$work/err"
) &
pid=$!
exec 3<"$work/pipe"
last=0
take() { # what has returned until now, one line at least
	read -r -t 60 last <&3 || lib_die "the program commits nothing more: $(cat "$work/err")"
	while read -r -t 0 <&3; do
		read -r last <&3 || lib_die "the program ended: $(cat "$work/err")"
	done
}
least=() most=()
for ((i = 0; i < cuts; i++)); do
	for ((k = RANDOM % 5; k >= 0; k--)); do take; done
	least[i]=$last
	cp --reflink=always "$image" "$work/host/cut$i" || lib_die 'the image cannot be cloned'
	take
	most[i]=$((last + 1))
done
{ kill -9 $pid && wait $pid; } 2>/dev/null
pid=
commits=$last
umount "$work/fs" || lib_die 'umount'

# ---- each copy

bad=0 replayed=0 new=0
fail() { bad=$((bad + 1)); [ $bad -gt 5 ] || echo "$fs, cut $i, versions ${least[i]} to ${most[i]}: $*"; }
for ((i = 0; i < cuts; i++)); do
	mount -o loop "$work/host/cut$i" "$work/copy" 2>"$work/out" || { fail "mount: $(cat "$work/out")"; continue; }
	for n in "${names[@]}"; do
		TXMAP_RUNTIME_DIR=$runtime "$txmap" recover "$work/copy/$n" >"$work/out" 2>&1 ||
			fail "txmap recover $n: status $?: $(cat "$work/out")"
		! grep -q 'recovered' "$work/out" || replayed=$((replayed + 1))
	done
	[ -z "$(find "$work/copy" -maxdepth 1 -name "*.txmap")" ] || fail "a journal is left"
	version=$(cd "$work/copy" && "$ledger" read "${names[@]}") || fail "the files are no version"
	[ "$version" -ge "${least[i]}" ] || fail "version $version is too old"
	[ "$version" -le "${most[i]}" ] || fail "version $version was not there yet"
	[ "$version" -le "${least[i]}" ] || new=$((new + 1))
	umount "$work/copy" || lib_die 'umount'
	rm "$work/host/cut$i"
done
echo "$fs, scope=$scope: $cuts cuts among $commits commits: $bad bad; $replayed journals replayed, $new newer than what had returned"
[ $bad = 0 ] && [ "$replayed" -gt 0 ]
