#!/bin/bash
# SPDX-License-Identifier: MIT
# txmap run with what is no good program, and what becomes of programs that end in odd ways.
. "$(dirname "$0")/lib.sh"

try() { run "$txmap" run --path "$dir/*.dat" --set "runtime_dir=$runtime" -- "$@"; }

t_programs() {
	claim 'a script whose interpreter is missing'
	printf '#!/no/such/interpreter\n' >s1; chmod +x s1
	try ./s1; is 127; one_line; errs '/no/such/interpreter'
	printf '#!\n' >s2; chmod +x s2
	try ./s2; [ "$status" = 0 ] || is 126
	printf '#!%s/s1\n' "$dir" >s3; chmod +x s3
	try ./s3; is 127; one_line
	printf '#!%s/loop\n' "$dir" >loop; chmod +x loop
	try ./loop; is 126; one_line; errs 'interpreters'
	printf '#!/usr/bin/env -S sh -eu\necho hi\n' >s4; chmod +x s4
	try ./s4; is 0; says '^hi$'; silent
	claim 'an empty file, and one of nothing but zeros, as a shell takes them'
	: >empty; chmod +x empty
	try ./empty; is 0; silent
	head -c 4096 /dev/zero >zeros; chmod +x zeros
	run ./zeros; local native=$status
	try ./zeros; [ "$status" = "$native" ] || [ "$status" = 126 ] || bad "natively $native"
	claim 'a truncated program'
	head -c 100 /bin/true >cut; chmod +x cut
	try ./cut; is 126; one_line
	head -c 16 /bin/true >cut; try ./cut; [ "$status" -ge 126 ] && [ "$status" -lt 128 ] || bad 'not 126'
	claim 'what is no file'
	mkfifo fifo; chmod +x fifo
	lib_limit=20
	try ./fifo; is 126; errs 'not a program'
	try /dev/null; is 126; one_line
	try "$dir"; is 126; errs 'not a program'
	try "$dir/"; is 126
	ln -s nowhere dangling
	try ./dangling; is 127
	ln -s me me
	try ./me; is 126; one_line
	try ''; is 127; one_line
	try /bin/true/x; is 127; one_line
	lib_limit=120
	claim 'a program that may be executed but not read'
	if [ "$who" = ordinary ]; then
		cp /bin/true x-only; chown 0:0 x-only; chmod 711 x-only
		try ./x-only; is 126; errs 'cannot be read'
	fi
	claim 'privileges: set-user-ID, set-group-ID, capabilities'
	cp /bin/true suid; chmod 4755 suid
	try ./suid; is 126; errs 'set-user-ID'
	if command -v setcap >/dev/null && cp /bin/true capable && setcap cap_net_raw+ep capable 2>/dev/null; then
		try ./capable; is 126; errs 'capabilities'
	fi
	if [ -n "$(command -v sudo)" ] && [ -u "$(command -v sudo)" ]; then
		try sudo true; is 126; errs 'set-user-ID'
	fi
	claim 'a static program, also by PATH'
	printf 'int main(void) { return 0; }\n' >s.c
	if gcc -static -o static s.c 2>/dev/null; then
		chmod 755 static
		try ./static; is 126; errs 'statically linked'; one_line
		run env PATH="$dir:$PATH" "$txmap" run --path '/x/*' static; is 126
	fi
}

t_ends() {
	claim 'the program'\''s status, signals and output are its own'
	local n
	for n in 0 1 2 3 4 78 126 127 255; do try sh -c "exit $n"; is "$n"; done
	for n in TERM KILL SEGV ABRT PIPE HUP; do
		try sh -c "kill -$n \$\$"; [ "$status" = $((128 + $(kill -l $n))) ] || bad "status after $n"
	done
	claim 'a crash of its own stays its own, with a managed file open'
	make_file a.dat o 64K
	for n in 11 7 6 4 8; do
		start; order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
		tell "raise $n"
		if [ "$n" = 11 ] || [ "$n" = 7 ]; then # the program handles these two
			read -r -t 20 answer <&"${from[$name]}"; [[ $answer = SIG* ]] || bad "it says $answer"
			killed
		else
			ended; is $((128 + n))
		fi
		silent
	done
	claim 'a program that crashes in memory that is not ours, and beyond the end of ours'
	command -v gcc >/dev/null || return
	cat >crash.c <<-'C'
		#include <fcntl.h>
		#include <stdlib.h>
		#include <sys/mman.h>
		int main(int argc, char **argv)
		{
			char *p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[1], O_RDWR), 0);
			if (p == MAP_FAILED) return 99;
			p[0] = 'c';
			switch (argc > 2 ? atoi(argv[2]) : 0) {
			case 0: *(volatile char *)8 = 1; break;
			case 1: p[100000] = 1; break;
			case 2: mprotect(p, 4096, PROT_READ); p[0] = 1; break;
			case 3: munmap(p, 4096); p[0] = 1; break;
			case 4: abort();
			case 5: __builtin_trap();
			}
			return 0;
		}
	C
	gcc -w -o crash crash.c || return
	[ "$who" != ordinary ] || chmod 755 crash
	for n in 0 1 2 3 4 5; do
		make_file a.dat o 64K
		run bash -c "ulimit -c 0; exec ./crash a.dat $n"; local native=$status
		make_file a.dat o 64K
		try bash -c "ulimit -c 0; exec ./crash $dir/a.dat $n"
		text="crash $n"
		[ "$status" = "$native" ] || bad "natively $native"
		! grep -qvE '^txmap\[[0-9]*\]: |/lib.sh: line' "$work/.err" || bad 'more than lines of ours'
		! grep -q BUG "$work/.err" || bad 'a bug'
		holds a.dat ooo
	done
}

each_user t_programs
each t_ends
exit $failed
