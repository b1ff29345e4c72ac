# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For scripts that run programs natively and under txmap, as root and as an ordinary user. Source it.
#
#	lib_begin NAME		a fresh directory $work under /var/tmp, gone at the end; a copy of libtxmap.so in it
#	for who in $users	"self", and when we are root also "ordinary" (uid 65534)
#	lib_dir who x		a fresh directory $dir, owned by who
#	lib_native who CMD	run CMD there as who
#	lib_txmap who engine CMD	the same under txmap, which manages every file below $work
#
# Under txmap means: preloaded, TXMAP_PATHS="$work/**". More settings: lib_set='TXMAP_COMMIT=none ...', and from whoever
# runs the test, more='TXMAP_SCOPE=group'. By another program, not preloaded itself: lib_by='CMD ARG ...'.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
unset LD_PRELOAD XDG_RUNTIME_DIR PYTHONPATH ${!TXMAP_@} || true
engines=${engines:-uffd segv}
lib_set=
lib_by=
lib_limit=120

users=self
[ "$(id -u)" != 0 ] || users='self ordinary'
users=${only_users:-$users}

lib_die() { echo "${0##*/}: $*" >&2; exit 1; }

lib_end() {
	local status=$?
	[ $status = 0 ] || [ -z "${keep:-}" ] || { echo "kept: $work" >&2; return; }
	rm -rf "$work"
}

lib_begin() {
	work=$(mktemp -d "/var/tmp/txmap-$1.XXXXXX")
	trap lib_end EXIT
	trap 'exit 130' INT TERM
	chmod 755 "$work"
	# Copies: an ordinary user may not be able to reach the tree. Outside the managed directory.
	mkdir "$work/bin" "$work/files"
	cp "$top/build/libtxmap.so" "$work/bin/"
	[ ! -e "$top/build/txmap" ] || cp "$top/build/txmap" "$work/bin/"
	so=$work/bin/libtxmap.so
	txmap=$work/bin/txmap
	# A preload that silently does not load would make every comparison here succeed.
	local who status
	for who in $users; do
		status=0
		lib_run "$who" env LD_PRELOAD="$so" TXMAP_PATHS=/nowhere TXMAP_COMMIT=nonsense true 2>/dev/null || status=$?
		[ $status = 78 ] || lib_die "the preload does nothing: a wrong setting as $who gave status $status, not 78"
	done
}

lib_dir() {
	dir=$work/files/$2
	rm -rf "$dir"
	mkdir -p "$dir"
	runtime=$work/run-$1
	[ -d "$runtime" ] || mkdir -m 700 "$runtime"
	[ "$1" != ordinary ] || chown 65534:65534 "$dir" "$runtime"
}

# lib_run WHO CMD...: as that user, with a time limit.
lib_run() {
	local who=$1
	shift
	if [ "$who" = ordinary ]; then
		HOME=/nonexistent timeout -k 5 "$lib_limit" setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	else
		timeout -k 5 "$lib_limit" "$@"
	fi
}

lib_native() { lib_in "$1" native "${@:2}"; }
lib_txmap() { lib_in "$@"; }

# lib_in WHO native|uffd|segv CMD...: in $dir.
lib_in() {
	local who=$1 how=$2
	shift 2
	if [ "$how" = native ]; then
		(cd "$dir" && TMPDIR=$dir lib_run "$who" "$@")
	else
		# shellcheck disable=SC2086 # lib_set, more and lib_by are lists of words
		(cd "$dir" && TMPDIR=$dir lib_run "$who" $lib_by env LD_PRELOAD="$so" TXMAP_PATHS="$work/files/**" \
			TXMAP_RUNTIME_DIR="$runtime" TXMAP_ENGINE="$how" $lib_set ${more:-} "$@")
	fi
}
