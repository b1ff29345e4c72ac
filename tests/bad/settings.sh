#!/bin/bash
# SPDX-License-Identifier: MIT
# A wrong setting stops the program before main: one line that says where it stands and what is allowed, status 78.
. "$(dirname "$0")/lib.sh"

refused() { # the last one was, in one line; it did not run
	is 78
	one_line
	errs '^txmap: '
	[ ! -e ran ] || bad 'the program ran'
	rm -f ran
}
conf() { printf '%s\n' "$@" >c.conf; [ "$who" != ordinary ] || chown 65534 c.conf; }

t_environment() {
	claim 'an unknown setting in the environment'
	run env LD_PRELOAD="$so" TXMAP_PATHS='/x/*' TXMAP_COMIT=none touch ran
	refused; errs 'TXMAP_COMIT: unknown setting; allowed: .* commit '
	run env LD_PRELOAD="$so" TXMAP_PATHS='/x/*' TXMAP_commit=none touch ran
	refused; errs 'TXMAP_commit'
	claim 'an unknown setting also without any rule'
	run env LD_PRELOAD="$so" TXMAP_COMIT=none touch ran
	refused; errs 'TXMAP_COMIT'
	claim 'wrong values name the setting, the value and what is allowed'
	local pair key value
	for pair in commit=msink commit=interval:0s commit=interval:5x commit=interval: commit=dirty:0 commit=dirty:-1 commit=none,msync \
		invalidate=now on_invalid_dirty=ask durability=most scope=all share=none conflict=win backend=tape engine=v8 \
		load=some memory=lots memory=-1 huge=1G journal=here on_error=ignore commit_signal=KILL \
		commit_signal=RTMIN+99 discard_signal=SIGNOPE invalidate_signal=0 control=maybe runtime_dir=here \
		log=loud log_file=here commit=msync,,fsync durability=; do
		key=${pair%%=*} value=${pair#*=}
		run env LD_PRELOAD="$so" TXMAP_PATHS='/x/*' "TXMAP_${key^^}=$value" touch ran
		text="TXMAP_${key^^}=$value"
		refused; errs "TXMAP_${key^^} = ${value//+/.}: .*allowed"
		run "$txmap" run --path '/x/*' --set "$pair" -- touch ran
		refused; errs "command line: $key = ${value//+/.}: .*allowed"
		conf '[defaults]' "$pair"
		run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/c.conf" touch ran
		refused; errs "$dir/c.conf:2: $key = ${value//+/.}: .*allowed"
	done
	claim 'what is not built yet is refused, never ignored'
	for pair in backend=sqlite:x.db backend=postgres:x memory=64M huge=thp huge=2M; do
		key=${pair%%=*} value=${pair#*=}
		run env LD_PRELOAD="$so" TXMAP_PATHS='/x/*' "TXMAP_${key^^}=$value" touch ran
		text="TXMAP_${key^^}=$value"
		refused; errs 'not available in this version'
	done
	claim 'one signal for two orders'
	run env LD_PRELOAD="$so" TXMAP_PATHS='/x/*' TXMAP_COMMIT_SIGNAL=USR1 TXMAP_DISCARD_SIGNAL=USR1 touch ran
	refused; errs 'USR1'
}

t_paths() {
	claim 'globs that can match nothing'
	local glob
	for glob in 'x/*.dat' './x' '/x//y' '/x/../y' '!/x' ':' '/x/*:'; do
		run env LD_PRELOAD="$so" "TXMAP_PATHS=$glob" touch ran
		text="TXMAP_PATHS=$glob"
		refused; errs 'TXMAP_PATHS'
	done
}

t_file() {
	claim 'a file that is missing'
	run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/none.conf" touch ran
	refused; errs "$dir/none.conf: .*ENOENT"
	run "$txmap" run --config none.conf -- touch ran
	refused; errs 'none.conf: .*No such file'
	run env LD_PRELOAD="$so" TXMAP_CONFIG= touch ran
	refused; errs 'TXMAP_CONFIG'
	claim 'a directory'
	run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir" touch ran
	refused; errs "$dir: .*EISDIR"
	run "$txmap" run --config . -- touch ran
	refused; errs "$dir: .*EISDIR"
	claim 'a FIFO does not hang'
	mkfifo f.conf
	lib_limit=10
	run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/f.conf" touch ran
	refused; errs 'f.conf'
	run "$txmap" run --config f.conf -- touch ran
	refused; errs 'f.conf'
	claim 'what never ends is too large'
	run env LD_PRELOAD="$so" TXMAP_CONFIG=/dev/zero touch ran
	refused; errs '/dev/zero'
	lib_limit=120
	claim 'a binary file'
	head -c 4096 /bin/true >b.conf
	run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/b.conf" touch ran
	refused; errs 'b.conf:1'
	claim 'an empty file is no rule'
	: >e.conf
	run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/e.conf" true
	is 0; silent
	claim 'a file that may not be read'
	if [ "$who" = ordinary ]; then
		conf '[defaults]'; chmod 0 c.conf
		run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/c.conf" touch ran
		refused; errs "$dir/c.conf: .*EACCES"
		run "$txmap" run --config c.conf -- touch ran
		refused; errs "$dir/c.conf: .*EACCES"
		rm -f c.conf
	fi
	claim 'syntax errors say file and line'
	local body
	for body in '[rule' 'commit' '[]' '[defaults] x' '= 3' '[rule]' '[rule a/b]' '[other]' 'commit = none' '[[defaults]]'; do
		conf '; a comment' "$body"
		run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/c.conf" touch ran
		text="the line $body"
		refused; errs "$dir/c.conf:2: "
	done
	for body in 'nonsense = 1' 'path = /x' 'paths = /x' 'commit = none'$'\n''commit = none' '[defaults]'; do
		conf '[defaults]' "$body"
		run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/c.conf" touch ran
		text="the line $body in [defaults]"
		refused; errs "$dir/c.conf:[23]: "
	done
	for body in 'engine = segv' 'path = x' 'log = info' '[rule r]' ''; do
		conf '[rule r]' "$body"
		run env LD_PRELOAD="$so" TXMAP_CONFIG="$dir/c.conf" touch ran
		text="the line '$body' in a rule"
		refused; errs "$dir/c.conf:[12]: "
	done
}

each_user t_environment
each_user t_paths
each_user t_file
exit $failed
