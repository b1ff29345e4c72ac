# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For the tests of what goes wrong: one clear line, the documented status, and nothing lost. Source it.
#
#	each_user / each FUNCTION	calls it with $who (and $engine) set, in a fresh directory $dir (the current one)
#	claim TEXT		what the next checks are about
#	run CMD...		runs it as $who: $status, $out, $err
#	under CMD...		the same under txmap, with rule "$glob" (every file below $dir) and the settings $set
#	is STATUS		the last one's exit status
#	says / errs / quiet PATTERN	its stdout / stderr matches (grep -E) / stderr does not
#	silent			its stderr is empty
#	one_line		its stderr is exactly one line
#	holds FILE BYTES [OFF]	FILE has BYTES at OFF
#	start [NAME]		poke.c in the background under txmap; several have NAMEs. Its pid is $pid.
#	order TEXT [ANSWER]	send it an order, its answer is $answer and, when given, must match ANSWER
#	tell TEXT		an order that has no answer, because it ends the program
#	stop / killed / ended	end its input / kill -9 it / nothing, and wait for it: $status
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
lib_begin "bad-$(basename "$0" .sh)"
cp "$top"/build/tests/bad/* "$work/bin/" 2>/dev/null
poke=$work/bin/poke
[ -x "$poke" ] || lib_die "build/tests/bad/poke is not there; make tests"
failed=0 text='' status=0 who=self engine=auto set='' pid='' name=one err_from=$work/.err
declare -A in=() from=() pids=() outs=()

bad_end() {
	local p
	for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null; done
	cd /
	[ -z "${mounted:-}" ] || umount -l $mounted 2>/dev/null
	lib_end
}
trap bad_end EXIT

claim() { text=$1; }
bad() {
	failed=1
	printf 'FAILED (%s, %s): %s: %s\n  status %s\n' "$who" "$engine" "$text" "$1" "$status"
	[ ! -e "$work/.out" ] || head -c 3000 "$work/.out" | sed 's/^/  stdout: /'
	[ ! -e "$err_from" ] || head -c 3000 "$err_from" | sed 's/^/  stderr: /'
	return 1
}
check() { # TEXT CMD...: the command succeeds
	local what=$1
	shift
	"$@" || bad "$what"
}
run() {
	status=0 err_from=$work/.err
	lib_run "$who" "$@" >"$work/.out" 2>"$work/.err" </dev/null || status=$?
	out=$(tr -d '\0' <"$work/.out")
	err=$(tr -d '\0' <"$work/.err")
}
settings() { # the environment of $set
	local word
	vars=(LD_PRELOAD="$so" TXMAP_PATHS="${glob-$dir/**}" TXMAP_RUNTIME_DIR="$runtime")
	[ "$engine" = auto ] || vars+=(TXMAP_ENGINE="$engine")
	for word in $set; do
		local key=${word%%=*}
		vars+=("TXMAP_${key^^}=${word#*=}")
	done
}
under() {
	settings
	run env "${vars[@]}" "$@"
}
txmap() { run env TXMAP_RUNTIME_DIR="$runtime" "$txmap" "$@"; }
is() { [ "$status" = "$1" ] || bad "exit status is not $1"; }
says() { grep -aqE -- "$1" "$work/.out" || bad "stdout does not say $1"; }
errs() { grep -aqE -- "$1" "$err_from" || bad "stderr does not say $1"; }
quiet() { ! grep -aqE -- "$1" "$err_from" || bad "stderr says $1"; }
silent() { [ ! -s "$err_from" ] || bad "stderr is not empty"; }
one_line() { [ "$(wc -l <"$err_from")" = 1 ] || bad "stderr is not one line"; }
holds() {
	local got
	got=$(dd if="$1" bs=1 skip="${3:-0}" count=${#2} 2>/dev/null | tr '\0' .)
	[ "$got" = "$2" ] || bad "$1 holds not $2 but $got at ${3:-0}"
}

as() { # CMD...: in the background or a pipe, as $who
	if [ "$who" = ordinary ]; then
		HOME=/nonexistent exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	else
		exec "$@"
	fi
}
start() {
	name=${1:-one}
	rm -f "$work/.to" "$work/.from"
	mkfifo "$work/.to" "$work/.from"
	outs[$name]=$work/.err-$name
	settings
	(
		for f in "${in[@]}" "${from[@]}"; do exec {f}>&-; done # the others' pipes
		as env "${vars[@]}" "$poke" <"$work/.to" >"$work/.from" 2>"${outs[$name]}"
	) &
	pids[$name]=$!
	local a b
	exec {a}>"$work/.to" {b}<"$work/.from"
	in[$name]=$a from[$name]=$b
	pid=${pids[$name]} err_from=${outs[$name]}
}
use() { name=$1 pid=${pids[$1]} err_from=${outs[$1]}; }
order() {
	answer='(none)'
	err_from=${outs[$name]}
	echo "$1" >&"${in[$name]}"
	read -r -t 60 answer <&"${from[$name]}" || { bad "no answer to '$1'"; return; }
	[ $# = 1 ] || [[ $answer =~ ^($2)$ ]] || bad "'$1' says '$answer', not '$2'"
}
tell() { echo "$1" >&"${in[$name]}"; } # an order that ends it
ended() { # close the pipes, wait
	exec {in[$name]}>&- {from[$name]}<&-
	status=0
	wait "${pids[$name]}" 2>/dev/null || status=$?
	unset "pids[$name]"
	err_from=${outs[$name]}
	err=$(tr -d '\0' <"$err_from")
}
stop() {
	exec {in[$name]}>&-
	exec {in[$name]}>/dev/null
	ended
}
killed() {
	kill -9 "${pids[$name]}"
	ended
}
make_file() { # FILE CHAR SIZE: all bytes CHAR; owned by $who
	head -c "$3" /dev/zero | tr '\0' "$2" >"$1"
	[ "$who" != ordinary ] || chown 65534:65534 "$1"
}

count=0
enter() {
	count=$((count + 1))
	lib_dir "$who" "d$count"
	set=''
	cd "$dir" || exit 1
}
leave() { # a test that leaves a process behind is wrong
	local n
	for n in "${!pids[@]}"; do use "$n"; killed; done
	cd "$work" || exit 1
	[ -n "${keep:-}" ] || rm -rf "$dir"
}
each_user() {
	local engines_=$engines
	for who in $users; do
		engine=auto
		enter; "$1"; leave
	done
	engines=$engines_
}
each() {
	for who in $users; do
		for engine in $engines; do enter; "$1"; leave; done
	done
}
mount_or_skip() { # ARGS...: mount; 1 when this is not allowed here
	mount "$@" 2>/dev/null || { echo "not tried: cannot mount ($*)"; return 1; }
	mounted="${mounted:-} ${*: -1}"
}
