#!/bin/bash
# SPDX-License-Identifier: MIT
# txmap run: the program is the program's own; what cannot be interposed is refused.
. "$(dirname "$0")/lib.sh"

claim 'the exit status, arguments and environment are the program'\''s own'
run "$txmap" run --path '/nowhere/*' -- sh -c 'echo "$1-$2"; exit 7' sh --path 'b c'
is 7; says '^--path-b c$'; silent

claim 'options of the program are not options of run'
run "$txmap" run --path '/nowhere/*' ls -d --color=never /
is 0; says '^/$'

claim 'the process becomes the program'
run sh -c 'echo $$; exec "$0" run --path "/nowhere/*" -- sh -c "echo \$\$"' "$txmap"
is 0; [ "$(sort -u <<<"$out" | wc -l)" = 1 ] || bad 'the pid changed'

claim 'settings become the environment, with globs made absolute and canonical'
mkdir real; ln -s real link
run "$txmap" run --path 'link/*.dat' --path '!link/a:b' --set commit=none --set log=error -- env
is 0; silent
says "^TXMAP_PATHS=$work/real/\*\.dat:!$work/real/a\\\\:b$"; says '^TXMAP_COMMIT=none$'; says '^TXMAP_LOG=error$'
says '^LD_PRELOAD=/.*/libtxmap\.so$'

claim 'other preloads stay, behind ours'
run env LD_PRELOAD=/dev/null "$txmap" run --path '/nowhere/*' -- env
says '^LD_PRELOAD=/.*/libtxmap\.so:/dev/null$'

claim 'a wrong setting is refused before anything runs'
run "$txmap" run --path '/x/*' --set commit=msink -- touch ran
is 78; errs '^txmap: command line: commit = msink: unknown event; allowed: none, .*msync'; [ ! -e ran ] || bad 'it ran'
run "$txmap" run --path '/x/*' --set backend=sqlite:x -- touch ran
is 78; errs 'not available in this version'
run env TXMAP_COMIT=none "$txmap" run --path '/x/*' -- touch ran
is 78; errs 'TXMAP_COMIT'
run "$txmap" run --config missing.conf -- touch ran
is 78; errs 'missing.conf: .*No such file'
printf '[defaults]\n\ncommit = x\n' >bad.conf
run "$txmap" run --config bad.conf -- touch ran
is 78; errs "^txmap: $work/bad.conf:3: commit = x: "; [ ! -e ran ] || bad 'it ran'

claim 'the preloaded library refuses the same, before main'
run env LD_PRELOAD="$top/build/libtxmap.so" TXMAP_COMMIT=msink touch ran
is 78; errs '^txmap: environment: TXMAP_COMMIT = msink: unknown event; allowed: '; [ ! -e ran ] || bad 'it ran'
run env LD_PRELOAD="$top/build/libtxmap.so" TXMAP_CONFIG="$work/bad.conf" touch ran
is 78; errs "^txmap: $work/bad.conf:3: commit = x: "; [ ! -e ran ] || bad 'it ran'

claim 'a program that is not there is not found'
run "$txmap" run --path '/x/*' no-such-program
is 127; errs 'no-such-program: command not found'
run "$txmap" run --path '/x/*' ./nowhere
is 127; errs './nowhere: No such file'

claim 'a file that cannot be executed is refused'
echo 'echo hi' >plain
run "$txmap" run --path '/x/*' ./plain
is 126; errs './plain: Permission denied'
run "$txmap" run --path '/x/*' "$work"
is 126; errs 'not a program'

claim 'a set-user-ID program is refused with the reason'
cp /bin/true setuid; chmod u+s setuid
run "$txmap" run --path '/x/*' ./setuid
is 126; errs './setuid: set-user-ID'
chmod u-s,g+s setuid
run "$txmap" run --path '/x/*' ./setuid
is 126; errs './setuid: set-group-ID'

claim 'a static program is refused with the reason, also behind a script'
echo 'int main(void) { return 0; }' >s.c
if gcc -static -o static s.c 2>/dev/null; then
	run "$txmap" run --path '/x/*' ./static
	is 126; errs './static: statically linked'
	printf '#!%s\n' "$work/static" >script; chmod +x script
	run "$txmap" run --path '/x/*' ./script
	is 126; errs 'statically linked'
	gcc -static-pie -o static s.c && run "$txmap" run --path '/x/*' ./static
	is 126; errs './static: statically linked'
fi

claim 'a program for another machine is refused with the reason'
cp /bin/true other
printf '\x28' | dd of=other bs=1 seek=18 conv=notrunc 2>/dev/null # e_machine: 32 bit ARM
run "$txmap" run --path '/x/*' ./other
is 126; errs './other: built for another kind of machine'
cp /bin/true other
printf '\x01' | dd of=other bs=1 seek=4 conv=notrunc 2>/dev/null # 32 bit
run "$txmap" run --path '/x/*' ./other
is 126; errs './other: built for another kind of machine'

claim 'a program of another C library is refused with the reason'
sed 's,/lib64/ld-linux,/lib64/ld-musl\x00,' /bin/true >musl; chmod +x musl
run "$txmap" run --path '/x/*' ./musl
is 126; errs './musl: uses another C library'

claim 'scripts run, with and without an interpreter line'
printf '#!/bin/sh\necho "hi $1"\n' >script; printf 'echo "ho $1"\n' >bare; chmod +x script bare
run "$txmap" run --path '/x/*' ./script a
is 0; says '^hi a$'
run "$txmap" run --path '/x/*' ./bare b
is 0; says '^ho b$'

claim 'without a rule it says that nothing will be managed'
run "$txmap" run true
is 0; errs 'nothing will be managed'

claim 'wrong usage is status 2'
for args in '' '--path' '--set x true' '--path= true' '--nonsense true'; do
	# shellcheck disable=SC2086 # words
	run "$txmap" run $args
	is 2
done
run "$txmap"; is 2
run "$txmap" fly; is 2; errs 'fly: unknown command'

claim 'help and version are on stdout'
run "$txmap" --help; is 0; says '^Commands:'; silent
run "$txmap" run --help; is 0; says -- '--path'; silent
run "$txmap" --version; is 0; says '^txmap [0-9]+\.[0-9]+'

exit $failed
