#!/bin/bash
# SPDX-License-Identifier: MIT
# txmap snapshot: copies of what programs have, and of what nobody has.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo 'python3 is not there'; exit 77; }
json() { # EXPRESSION: true of the document d on stdout
	python3 -c 'import json, sys; d = json.load(sys.stdin); assert eval(sys.argv[1]), d' "$1" <"$work/.out" 2>>"$work/.err" ||
		bad "the document is not $1"
}
same() { cmp -s "$1" "$2" || bad "$1 is not $2"; }
clean() { # nothing is left of a copy but those named
	local f
	for f in .*.txmap-copy */.*.txmap-copy; do [ ! -e "$f" ] || bad "$f is left"; done
}
refused() { # PATTERN [STATUS]: one line, and nothing happened
	is "${2:-1}"
	errs "$1"
	[ "$(wc -l <"$work/.err")" = 1 ] || bad 'stderr is not one line'
	clean
}

claim 'with nobody and no file there is no target'
run "$txmap" snapshot --path 'x*.dat' out; is 3; errs 'x\*\.dat'
run "$txmap" snapshot 1 out; is 3; errs 'pid 1 '

claim 'wrong usage is status 2'
run "$txmap" snapshot; is 2
run "$txmap" snapshot out; is 2; errs TARGET
run "$txmap" snapshot --path a.dat; is 2; errs OUT
run "$txmap" snapshot x out; is 2; errs 'not a pid'
run "$txmap" snapshot --all 1 out; is 2
run "$txmap" snapshot --all ''; is 2

printf 'old%4093s%4096s' '' '' >a.dat
chmod 640 a.dat
[ "$(id -u)" != 0 ] || chown 1234:4321 a.dat
start a.dat --set commit=none
order 'store new'

claim 'the copy has what the program stored, the file has not, and it is still uncommitted'
run "$txmap" snapshot "$pid" out; is 0; silent; says "^files 1 +instants 1 +bytes 8192 +reflinked [01] +pid $pid$"
holds out new; holds a.dat old
[ "$(stat -c '%a %u %g %s' out)" = "$(stat -c '%a %u %g %s' a.dat)" ] || bad "out is $(stat -c '%a %u %g %s' out)"
run "$txmap" status --json "$pid"; is 0; json 'd["processes"][0]["files"][0]["dirty"] == 1 and d["processes"][0]["files"][0]["txid"] == 0'
clean

claim 'OUT that exists is refused without --force'
order 'store two'
run "$txmap" snapshot --path a.dat out; refused 'it exists: EEXIST'; holds out new
run "$txmap" snapshot --path a.dat --json out; is 1; json 'not d["ok"] and d["results"][0]["errno"] == "EEXIST"'
run "$txmap" snapshot --path a.dat --force out; is 0; holds out two
run "$txmap" --json snapshot --path a.dat -f out; is 0
json "d['ok'] and len(d['results']) == 1 and d['results'][0]['pid'] == $pid and d['results'][0]['bytes'] == 8192"

claim 'a directory takes the name of the file; a relative OUT is taken from the current directory of the command'
mkdir -p d/sub
(cd d && run "$txmap" snapshot --path ../a.dat sub; is 0); holds d/sub/a.dat two
(cd d && run "$txmap" snapshot "$pid" ./b; is 0); holds d/b two
run "$txmap" snapshot --path a.dat d/nix/b; refused 'ENOENT'
run "$txmap" snapshot --path a.dat d/b/c; refused 'ENOTDIR'
run "$txmap" snapshot --path a.dat new/; refused 'EISDIR'

claim 'the file itself by any name, its journal, and what is no file are refused, with --force, too'
ln a.dat d/hard; ln -s ../a.dat d/soft; mkfifo d/fifo; ln -s nowhere d/dangling; ln .a.dat.txmap d/journal
for o in a.dat d/hard d/soft . "$work/d/../a.dat"; do
	run "$txmap" snapshot --path a.dat --force "$o"; refused 'the file itself: EINVAL'
done
run "$txmap" snapshot --path a.dat --force .a.dat.txmap; refused 'name of a journal: EINVAL'
run "$txmap" snapshot --path a.dat d/.x.txmap; refused 'name of a journal: EINVAL'
run "$txmap" snapshot --path a.dat --force d/fifo; refused 'no regular file: EINVAL'
run "$txmap" snapshot --path a.dat d/dangling; refused 'it exists: EEXIST'
run "$txmap" snapshot --path a.dat --force d/dangling; is 0; holds d/dangling two
[ ! -L d/dangling ] && [ ! -e d/nowhere ] || bad 'the link was followed'
printf 'busy' >d/busy; printf x >d/.busy.txmap
run "$txmap" snapshot --path a.dat --force d/busy; refused 'it has a journal.*EBUSY'
holds d/busy busy
rm d/soft d/fifo

claim 'OUT may be as long as names and paths may be'
long=$(printf 'n%.0s' $(seq 255))
run "$txmap" snapshot --path a.dat "d/$long"; is 0; holds "d/$long" two
run "$txmap" snapshot --path a.dat "d/${long}n"; refused 'ENAMETOOLONG'
deep=$work
while [ ${#deep} -lt 3600 ]; do deep=$deep/$(printf 'd%.0s' $(seq 200)); done
python3 -c 'import os, sys
d = sys.argv[1]
for n in sys.argv[2][len(d) + 1:].split("/"): os.makedirs(n); os.chdir(n)' "$work" "$deep"
run "$txmap" snapshot --path a.dat "$deep/ with %41 and
a line"; is 0
holds "$deep/ with %41 and
a line" two
run "$txmap" snapshot --path a.dat "$deep/$long"; is 0
run "$txmap" snapshot --path a.dat "$deep/$long/$long"; is 1; errs 'ENAMETOOLONG|ENOTDIR'

claim 'what one who was killed left is taken away; what somebody makes just now is not'
printf 'half' >d/.k.txmap-copy
run "$txmap" snapshot --path a.dat d/k; is 0; holds d/k two; clean
printf 'half' >d/.l.txmap-copy
exec 9>>d/.l.txmap-copy
flock 9
run "$txmap" snapshot --path a.dat d/l; is 1; errs 'another copy .*EBUSY'
exec 9>&-
[ "$(cat d/.l.txmap-copy)" = half ] && [ ! -e d/l ] || bad 'it was taken away'
run "$txmap" snapshot --path a.dat d/l; is 0; holds d/l two; clean

claim 'a file that was changed from outside is refused like a commit'
sleep 0.01 # a file's time moves in steps
printf 'out' | dd of=a.dat conv=notrunc bs=1 seek=4096 2>/dev/null
sleep 0.2 # how often the program's side looks
run "$txmap" snapshot --path a.dat d/m; refused 'changed by somebody else.*EBUSY'
[ ! -e d/m ] || bad 'there is a copy'
run "$txmap" discard "$pid"; is 0
run "$txmap" invalidate "$pid"; is 0
order 'store end'
run "$txmap" snapshot --path a.dat d/m; is 0; holds d/m end

claim 'status says when file and journal agree on disk'
run "$txmap" status "$pid"; says 'RECOVERY ON DISK PATH'; says ' yes +/.*a.dat'
run "$txmap" commit "$pid"; is 0
run "$txmap" status "$pid"; says ' no +/.*a.dat'
run "$txmap" status --json "$pid"; json 'd["processes"][0]["files"][0]["on_disk"] is False'
for i in $(seq 100); do # until the journal is idle for three seconds
	run "$txmap" status "$pid"
	grep -q ' yes ' .out && break
	sleep 0.1
done
says ' yes +/.*a.dat'
cp a.dat plain
run "$txmap" snapshot --path a.dat d/n; is 0; same plain d/n

claim 'after the end of use the command copies by itself'
stop
run "$txmap" snapshot --path a.dat d/o; is 0; silent; says '^files 1 +instants 1 +bytes 8192 +reflinked [01] +pid -$'
same a.dat d/o
run "$txmap" snapshot --path a.dat d/o; refused 'it exists: EEXIST'
run "$txmap" snapshot --path a.dat --force a.dat; refused 'the file itself'
run "$txmap" snapshot --path a.dat --force --json d/o; is 0; json 'd["ok"] and d["results"][0]["files"] == 1'

claim 'what a crash left in the journal is in the copy, and file and journal stay'
start a.dat --set commit=none
order 'store 1st'
run "$txmap" commit "$pid"; is 0
order 'store PQR'
run "$txmap" commit "$pid"; is 0
kill -9 "$pid"; stop 2>/dev/null
dd if=d/o of=a.dat bs=4096 count=1 conv=notrunc 2>/dev/null # as if the page cache had been lost
cp .a.dat.txmap journal; cp a.dat before
run "$txmap" snapshot --path a.dat d/p; is 0; holds d/p PQR
same .a.dat.txmap journal; same a.dat before
printf 'damaged' | dd of=.a.dat.txmap bs=1 seek=8256 conv=notrunc 2>/dev/null
run "$txmap" snapshot --path a.dat d/r; refused 'is damaged'
[ ! -e d/r ] || bad 'there is a copy'
cp journal .a.dat.txmap
run "$txmap" recover a.dat; is 0; same a.dat d/p

claim 'a journal of a process that gives no answer is in use'
start a.dat --set commit=none --set control=off
order 'store YYY'
run "$txmap" snapshot --path a.dat d/s; refused 'in use.*EBUSY'
stop

claim 'several files go into a directory, each of an instant of its own'
printf 'one%4093s' '' >b.dat
mkdir -p e/a f
printf 'two%4093s' '' >e/b.dat
cat >two.py <<'PY'
import mmap, os, sys
maps = []
for name in sys.argv[1:]:
    fd = os.open(name, os.O_RDWR)
    m = mmap.mmap(fd, 0)
    m[3:6] = b"new"
    maps.append(m)
print("ready", flush=True)
sys.stdin.read()
PY
several() { # FILE... [--group]: two.py on them; $pid
	local scope=file
	[ "${!#}" != --group ] || { scope=group; set -- "${@:1:$#-1}"; }
	mkfifo to.$$ from.$$
	"$txmap" run --path "$work/**.dat" --set commit=none --set scope=$scope -- python3 two.py "$@" <to.$$ >from.$$ 2>program.err &
	pid=$!
	started+=("$pid")
	exec 7>to.$$ 8<from.$$
	rm -f to.$$ from.$$
	read -r -t 20 answer <&8 || bad "the program does not answer: $(cat program.err)"
}
several a.dat b.dat
run "$txmap" snapshot "$pid" out2; refused '2 files go into a directory'
run "$txmap" snapshot "$pid" f; is 0; says '^files 2 +instants 2 '
holds f/b.dat onenew; holds b.dat "one   "
run "$txmap" snapshot "$pid" f; is 1; errs EEXIST
run "$txmap" snapshot --force "$pid" f; is 0
run "$txmap" snapshot --path '**/b.dat' f --force; refused 'have one name'
rm -rf d f; mkdir f
claim 'files that nobody has come along'
printf 'six%4093s' '' >c.dat
run "$txmap" snapshot --path '*.dat' f; is 0; says "^files 2 .*pid $pid"; says '^files 1 .* pid -$'
holds f/b.dat onenew; holds f/c.dat six
[ "$(ls f | wc -l)" = 3 ] || bad 'not three copies'
stop
several b.dat e/b.dat
run "$txmap" snapshot "$pid" f; refused 'have one name'
stop

claim 'files of a group are copied at one instant'
rm -rf f; mkdir f
cat >group.py <<'PY'
import ctypes, mmap, os, sys, threading
maps = []
for name in sys.argv[1:]:
    maps.append(mmap.mmap(os.open(name, os.O_RDWR), 0))
words = [ctypes.c_uint64.from_buffer(m, 64) for m in maps]
stop = False
def run():
    n = 0
    while not stop:
        n += 1
        for w in words: w.value = n
        if n % 20 == 0: maps[0].flush()
t = threading.Thread(target=run)
t.start()
print("ready", flush=True)
sys.stdin.read()
stop = True
t.join()
PY
mkfifo to.$$ from.$$
"$txmap" run --path "$work/*.dat" --set scope=group --set commit=msync -- python3 group.py a.dat b.dat c.dat <to.$$ >from.$$ 2>program.err &
pid=$!
started+=("$pid")
exec 7>to.$$ 8<from.$$
rm -f to.$$ from.$$
read -r -t 20 answer <&8 || bad "the program does not answer: $(cat program.err)"
for i in 1 2 3 4 5 6; do
	run "$txmap" snapshot "$pid" f --force; is 0; says '^files 3 +instants 1 '
	read -r one two three < <(for n in a b c; do od -An -tu8 -j 64 -N 8 f/$n.dat; done | tr '\n' ' ')
	[ "$one" -ge "$two" ] && [ "$two" -ge "$three" ] && [ $((one - three)) -le 1 ] && [ "$one" -gt 0 ] ||
		bad "not one instant: $one $two $three"
done
run "$txmap" snapshot --path b.dat f --force; is 0; says '^files 1 +instants 1 '

stop

claim 'and what a crash left in its journal is in the copies'
mkdir g h; cp -a ./*.dat h
several a.dat b.dat c.dat --group
run "$txmap" commit "$pid"; is 0; says 'files 3'
kill -9 "$pid"; stop 2>/dev/null
cp -a ./*.dat g
for n in a b c; do cat h/$n.dat >$n.dat; done # as if the page cache had been lost
cp -a .*.txmap h
run "$txmap" snapshot --path '*.dat' f --force; is 0
for n in a b c; do same f/$n.dat g/$n.dat; same $n.dat h/$n.dat; same .$n.dat.txmap h/.$n.dat.txmap; done
run "$txmap" recover a.dat; is 0
for n in a b c; do same $n.dat g/$n.dat; done
rm -rf g h

claim 'a file that two processes share is copied once; of two states each is named'
start a.dat --set commit=none
order 'store S1S'
first=$pid
exec 5>&7 6<&8
start a.dat --set commit=none
order 'show'
run "$txmap" snapshot --path a.dat f/t; is 0; holds f/t S1S
[ "$(grep -c files .out)" = 1 ] || bad 'not one answer'
stop; exec 5>&- 6<&-; wait "$first"
start a.dat --set commit=none --set share=process
order 'store P1P'
first=$pid
exec 5>&7 6<&8
start a.dat --set commit=none --set share=process
order 'store P2P'
run "$txmap" snapshot --path a.dat f/u; is 4; errs 'share=process.*by its pid'
run "$txmap" snapshot "$first" f/v; is 0; holds f/v P1P
run "$txmap" snapshot "$pid" f/w; is 0; holds f/w P2P
run "$txmap" commit "$first"; is 0
run "$txmap" snapshot "$pid" f/x; is 0; holds f/x P2P # its own state, whatever others committed
stop; exec 5>&- 6<&-
clean
exit $failed
