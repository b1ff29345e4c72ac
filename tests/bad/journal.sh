#!/bin/bash
# SPDX-License-Identifier: MIT
# The journal that a crash left is cut, flipped, exchanged, of another file or of the future: seen through txmap check
# and recover and through a program that maps the file. It is always one whole commit, or refused with a line and
# nothing changed.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo 'no python3 here'; exit 77; }

cat >"$work/bin/sweep.py" <<'PY'
# sweep.py TXMAP POKE STEP: in the current directory: v0..v3 and journal.good; the environment has the preload in PRE_*
import os, subprocess, sys, json
txmap, poke, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
versions = [open(f"v{i}", "rb").read() for i in range(4)]
good = open("journal.good", "rb").read()
inode = os.stat("a.dat").st_ino
pre = {k[4:]: v for k, v in os.environ.items() if k.startswith("PRE_")}
nbad = ncases = 0
kinds = {}

def put(journal, base):
    with open("a.dat", "r+b") as f: f.truncate(len(base)); f.write(base)
    with open(".a.dat.txmap", "wb") as f: f.write(journal)

def complain(what, why, r):
    global nbad
    nbad += 1
    if nbad < 10: print(f"{what}: {why}; status {r.returncode}; {r.stdout!r} {r.stderr!r}")

def see(what, journal, base=0, want=None):
    """want: the versions that may come out, None among them: refused"""
    global ncases
    ncases += 1
    before = versions[base]
    put(journal, before)
    r = subprocess.run([txmap, "check", "--json", "a.dat"], capture_output=True)
    if r.returncode not in (0, 1): return complain(what, "check", r)
    doc = json.loads(r.stdout)["results"][0]
    if open("a.dat", "rb").read() != before or open(".a.dat.txmap", "rb").read() != journal:
        return complain(what, "check changed something", r)
    if not doc["text"] or "\n" in doc["text"]: return complain(what, "no line", r)
    state = doc["state"]
    kinds[state] = kinds.get(state, 0) + 1
    for how in ("recover", "map"):
        put(journal, before)
        if how == "recover":
            r = subprocess.run([txmap, "recover", "a.dat"], capture_output=True)
            refused, fine = r.returncode == 1, r.returncode == 0
            said = r.stderr if refused else r.stdout
        else:
            r = subprocess.run([poke], input=f"open {os.getcwd()}/a.dat\nmap 0 ro\nload 0 4\n".encode(), capture_output=True,
                               env=dict(os.environ, **pre))
            lines = r.stdout.split()
            fine, refused = lines[1:2] == [b"ok"], lines[1:2] == [b"EUCLEAN"]
            said = r.stderr
            if r.returncode: return complain(what, how, r)
        after = open("a.dat", "rb").read()
        if refused:
            if after != before: return complain(what, how + ": refused, but the file changed", r)
            if open(".a.dat.txmap", "rb").read() != journal: return complain(what, how + ": refused, but the journal changed", r)
            if not said.strip() or said.strip().count(b"\n") > 1: return complain(what, how + ": not one line", r)
            if state not in ("damaged", "foreign journal"): return complain(what, f"{how} refuses what check calls {state}", r)
            got = None
        elif fine:
            if after not in versions: return complain(what, how + ": no version", r)
            if os.path.exists(".a.dat.txmap"): return complain(what, how + ": the journal stays", r)
            got = versions.index(after)
            if doc["commits"] and not said: return complain(what, how + ": says nothing about what it kept", r)
        else:
            return complain(what, how, r)
        if want is not None and got not in want: return complain(what, f"{how}: comes out as {got}, not {want}", r)

see("the whole journal", good, 0, [3])
for base in (1, 2, 3): see(f"the file has commit {base}", good, base, [3])
frames = [i for i in range(8192, len(good), 512) if good[i:i + 8] == b"\x04TXFRAME"]
assert len(frames) == 3, frames
stops = [f + 128 + int.from_bytes(good[f + 88:f + 92], "little") for f in frames] # their zeros up to the next sector follow
def cut(n): # as many commits as are whole, where zeros at the end need not be there
    return sorted({sum(len(good[:e].rstrip(b"\0")) <= n for e in stops), sum((e + 511) // 512 * 512 <= n for e in stops)})
def may(n): # a commit that was durable is not dropped; of the last one nothing proves that
    return [2, 3, None] if n >= frames[-1] else [3, None]
end = len(good.rstrip(b"\0"))
lengths = sorted(set(range(0, 8192, 1024)) | set(range(8192, end + 512, step)) | {8191, 8193, 1, 511, 512, 513, end - 1, end, len(good) - 1})
last = -1
for n in lengths:
    if n < len(good): see(f"cut at {n}", good[:n], 0, cut(n))
for n in lengths:
    if n < len(good): see(f"zeros from {n}", good[:n] + bytes(len(good) - n), 0, cut(n) if n >= 8192 else None)
for n in list(range(0, 512, max(step // 8, 1))) + list(range(4096, 4608, step)) + list(range(8192, end, step)):
    see(f"byte {n} flipped", good[:n] + bytes([good[n] ^ 0xff]) + good[n + 1:], 0, may(n))
    see(f"bit of byte {n} flipped", good[:n] + bytes([good[n] ^ 1]) + good[n + 1:], 0, may(n))
see("empty", b"", 0, [0])
see("text", b"no journal\n" * 1000, 0, [None])
see("a program", open("/bin/true", "rb").read(), 0, [None])
see("zeros", bytes(65536), 0, [0])
see("both halves exchanged", good[4096:8192] + good[:4096] + good[8192:], 0, None)
see("twice", good + good, 0, None)
print(f"{ncases} journals, {nbad} wrong; {kinds}")
sys.exit(nbad > 0)
PY

prepare() { # a.dat with three commits in its journal, v0..v3
	make_file a.dat x 20000
	cp a.dat v0
	set="control=off" # no checkpoint in between
	start
	order "open $dir/a.dat" ok; order 'map 0' ok
	order 'store 0 one' ok; order 'store 9000 one' ok; order msync ok; cp a.dat v1
	order 'fill 4096 600 b' ok; order 'store 0 two' ok; order msync ok; cp a.dat v2
	order 'store 0 three' ok; order 'store 19000 three' ok; order msync ok; cp a.dat v3
	killed
	cp .a.dat.txmap journal.good
	[ "$who" != ordinary ] || chown 65534 v? journal.good
}

t_sweep() {
	claim 'a journal that is cut at any length, or has any byte flipped'
	prepare
	settings
	local v envs=()
	for v in "${vars[@]}"; do envs+=("PRE_$v"); done
	lib_limit=250
	run env "${envs[@]}" python3 "$work/bin/sweep.py" "$txmap" "$poke" "${step:-128}"
	is 0
	says ' 0 wrong'
	cat "$work/.out"
	lib_limit=120
}

t_foreign() {
	claim 'the journal of another file is refused, and told'
	prepare
	make_file b.dat y 20000
	cp -a journal.good .b.dat.txmap
	txmap check b.dat; is 1; errs 'foreign.*of another file|another file'
	txmap recover b.dat; is 1; one_line; errs 'b.dat.*another file'
	start; order "open $dir/b.dat" ok; order 'map 0' EUCLEAN; errs 'b.dat.*another file'; stop
	holds b.dat yyyy; cmp -s journal.good .b.dat.txmap || bad 'the journal changed'
	claim 'with on_error=passthrough it goes on, with a warning'
	set=on_error=passthrough
	start; order "open $dir/b.dat" ok; order 'map 0' ok; errs 'NOT managed'; order 'store 0 z' ok; stop; holds b.dat zyyy
	rm .b.dat.txmap

	claim 'the file was copied over its name meanwhile: the journal is not for it'
	cp v0 other; mv other a.dat; [ "$who" != ordinary ] || chown 65534 a.dat
	txmap recover a.dat; is 1; errs 'another file'
	cmp -s v0 a.dat || bad 'the file changed'

	claim 'a journal of a future version is refused by that number'
	rm -f a.dat .a.dat.txmap; prepare
	python3 - <<-'PY'
		j = bytearray(open("journal.good", "rb").read())
		import struct
		for slot in (0, 4096): j[slot + 8:slot + 12] = struct.pack("<I", 7)
		open("future", "wb").write(j)
	PY
	cp future .a.dat.txmap
	txmap check a.dat; is 1; errs 'damaged|version'
	txmap recover a.dat; is 1
	cmp -s future .a.dat.txmap || bad 'the journal changed'
	start; order "open $dir/a.dat" ok; order 'map 0' EUCLEAN; stop

	claim 'what is no file: a directory, a link, a FIFO, another user'\''s'
	rm -f .a.dat.txmap; mkdir .a.dat.txmap
	txmap check a.dat; is 1; one_line
	txmap recover a.dat; is 1; one_line
	start; order "open $dir/a.dat" ok; order 'map 0' 'E[A-Z]+'; errs 'a.dat'; stop
	rmdir .a.dat.txmap; mkfifo .a.dat.txmap
	lib_limit=20
	txmap check a.dat; is 1; one_line
	txmap recover a.dat; is 1; one_line
	start; order "open $dir/a.dat" ok; order 'map 0' 'E[A-Z]+'; errs 'a.dat'; stop
	rm .a.dat.txmap; ln -s journal.good .a.dat.txmap
	txmap check a.dat; is 1; errs 'symbolic link'
	txmap recover a.dat; is 1; errs 'symbolic link'
	start; order "open $dir/a.dat" ok; order 'map 0' 'E[A-Z]+'; errs 'symbolic link'; stop
	rm .a.dat.txmap
	if [ "$(id -u)" = 0 ]; then
		cp journal.good .a.dat.txmap; chown 65533 .a.dat.txmap; chmod 666 .a.dat.txmap
		txmap recover a.dat; is 1; errs 'another user'
		start; order "open $dir/a.dat" ok; order 'map 0' 'E[A-Z]+'; errs 'another user'; stop
		rm -f .a.dat.txmap
	fi
	if [ "$who" = ordinary ]; then
		claim 'recovery that may not write says so'
		cp -a journal.good .a.dat.txmap; cp v0 a.dat; chown 0:0 a.dat .a.dat.txmap; chmod 644 a.dat .a.dat.txmap
		txmap check a.dat
		txmap recover a.dat; is 1; one_line; errs 'EACCES'
		start; order "open $dir/a.dat ro" ok; order 'map 0 ro' 'EACCES|EUCLEAN'; errs 'a.dat.*EACCES'; stop
	fi
}

t_sequence() {
	claim 'recovery that is killed again and again ends the same'
	prepare
	local i
	for i in $(seq 20); do
		cp v0 a.new; cat a.new >a.dat; cp journal.good .a.dat.txmap; [ "$who" != ordinary ] || chown 65534 .a.dat.txmap
		settings
		(as env "${vars[@]}" "$txmap" recover a.dat >/dev/null 2>&1) & local p=$!
		sleep "0.00$((i % 10))"; kill -9 $p 2>/dev/null; wait $p 2>/dev/null
		txmap recover a.dat; is 0
		cmp -s a.dat v3 || bad 'not the last commit'
	done
	claim 'txmap check and recover of what is not there, or no file'
	txmap check "$dir"; [ "$status" = 0 ] || is 1
	txmap recover /dev/null; [ "$status" -lt 2 ] || bad 'odd status'
	txmap recover nowhere; is 3
	txmap check a.dat nowhere; is 4
	mkfifo fifo; txmap check fifo; txmap recover fifo
	[ "$status" -lt 2 ] || bad 'it hangs'
}

who=self; engine=auto; enter; t_sweep; leave
each_user t_foreign
each_user t_sequence
exit $failed
