#!/bin/bash
# SPDX-License-Identifier: MIT
# Ordinary programs do the same when a rule matches every file of theirs, or every file of the machine.
. "$(dirname "$0")/lib.sh"

# same NAME COMMANDS: the shell commands print the same, and leave the same files, natively and under txmap.
same() {
	claim "$1 (rule ${glob_name})"
	rm -rf native ours; mkdir native ours
	[ "$who" != ordinary ] || chown 65534 native ours
	run env TMPDIR="$dir/native" bash -c "cd '$dir/native' && { $2
	} 2>&1"
	sed "s,$dir/native,DIR,g" "$work/.out" >"$work/want"
	local want_status=$status
	settings
	run env "${vars[@]}" TMPDIR="$dir/ours" bash -c "cd '$dir/ours' && { $2
	} 2>&1"
	sed "s,$dir/ours,DIR,g" "$work/.out" >"$work/got"
	silent
	[ "$status" = "$want_status" ] || bad "status is $status, natively $want_status"
	cmp -s "$work/want" "$work/got" || {
		bad 'it says something else'
		diff "$work/want" "$work/got" | head -20
	}
	local w g
	w=$(cd native && find . ! -path './.git/*' | sort) g=$(cd ours && find . ! -path './.git/*' | sort)
	[ "$w" = "$g" ] || { bad 'other files are left'; diff <(echo "$w") <(echo "$g") | head; }
	# what this machine does not let it do (a /dev/shm of its own) it must fail at in the same way, which was looked at above
	[ $want_status = 0 ] || echo "note: it fails natively, too: $(tail -1 "$work/want")"
}
have() { command -v "$1" >/dev/null; }

t_programs() {
	local g
	have git && export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
	for g in "$dir/**" '/**'; do
		glob=$g glob_name=$g
		[ "$g" = '/**' ] || glob_name='its directory'
		same coreutils 'seq 1 20000 >a; sort -rn a >b; wc b; cp b c; cmp b c; dd if=a of=d bs=1k conv=sync 2>/dev/null; sha256sum a b c d
			tail -3 b; cat a b c | md5sum; ln a e; mv e f; rm c; ls; truncate -s 5M h; cp --sparse=always h i; shuf --random-source=a a | head -3; tee j <a | tail -1'
		same bash 'x=$(seq 100 | while read -r l; do echo "$l"; done | tail -1); echo "$x"; cat <<<"here $x"; cat <<E
text
E
			mapfile -t v <<<"$x"; echo "${v[0]}" > f; read -r y <f; echo "$y"; (echo sub; exit 3); echo $?; sleep 0.01 & wait; echo done | tee g; diff <(echo a) <(echo a) && echo same'
		have gcc && same gcc 'printf "#include <stdio.h>\nint main(void) { puts(\"hi\"); return 0; }\n" >m.c; gcc -O2 -g -o m m.c && ./m; gcc -c m.c && ar rc libm.a m.o && ranlib libm.a && gcc -o n -Wl,--whole-archive libm.a && ./n; strip n && ./n; objdump -d m.o | head -5'
		have git && same git 'git init -q . && git config user.email a@b && git config user.name n && for i in 1 2 3; do seq $i 2000 >f$i; git add . && GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z git commit -qm c$i; done; git log --oneline; git gc -q 2>&1; git fsck 2>&1; git checkout -q HEAD~2 && ls && git log --stat | cat'
		have perl && same perl 'perl -e "open(F, q(>), q(x)); print F \"line \$_\n\" for 1..1000; close F; open(F, q(+<), q(x)); seek(F, 10, 0); print F q(ABC); close F; open(F, q(x)); my @l = <F>; print scalar(@l), \$l[1]; print -s q(x), qq(\n); fork() or exit 3; wait; print \$? >> 8, qq(\n);"'
		have python3 && same python3 'python3 -c "
import mmap, os, tempfile, sqlite3, subprocess, json, zipfile, shutil, multiprocessing, threading
with open(\"f\", \"w+b\") as f:
    f.write(b\"x\" * 10000); f.flush()
    with mmap.mmap(f.fileno(), 0) as m: m[5:8] = b\"abc\"; m.flush(); print(m.find(b\"abc\"), m.size()); m.resize(20000); m[19999:] = b\"z\"
print(os.path.getsize(\"f\"), open(\"f\",\"rb\").read()[4:9])
with tempfile.TemporaryFile() as t:
    t.write(b\"y\" * 8192); t.flush(); m = mmap.mmap(t.fileno(), 0); m[0:1] = b\"q\"; t.seek(0); print(t.read(2))
c = sqlite3.connect(\"d.db\"); c.execute(\"pragma mmap_size=1000000\"); c.execute(\"pragma journal_mode=wal\").fetchall(); c.execute(\"create table t(a)\"); c.executemany(\"insert into t values(?)\", [(i,) for i in range(1000)]); c.commit(); print(c.execute(\"select sum(a) from t\").fetchone()); c.close()
print(subprocess.check_output([\"cat\", \"f\"])[:3]); shutil.copy(\"f\", \"g\"); print(open(\"g\",\"rb\").read() == open(\"f\",\"rb\").read())
z = zipfile.ZipFile(\"z.zip\", \"w\"); z.write(\"f\"); z.close(); print(zipfile.ZipFile(\"z.zip\").testzip())
m = mmap.mmap(-1, 4096); pid = os.fork()
if not pid: m[0:2] = b\"ok\"; os._exit(0)
os.wait(); print(m[0:2])
ctx = multiprocessing.get_context(\"fork\"); q = ctx.Queue(); p = ctx.Process(target=lambda: q.put(5)); p.start(); print(q.get()); p.join()
os.remove(\"f\"); os.rename(\"g\", \"f\"); print(sorted(os.listdir(\".\")))
"'
		have sqlite3 && same sqlite3 'sqlite3 x.db "create table t(a,b); insert into t values(1,2),(3,4); select * from t; vacuum; pragma integrity_check;"'
		have tar && same tar 'mkdir s; seq 5000 >s/a; tar cf - --mtime=2020-01-01 s | gzip -n | md5sum; tar cf t.tar --mtime=2020-01-01 s && tar tf t.tar && mkdir o && tar xf t.tar -C o && cmp s/a o/s/a && echo same'
		have java && same java 'printf "public class H { public static void main(String[] a) { System.out.println(42); } }" >H.java; java -XX:-UsePerfData H.java'
		have sed && same sed 'seq 10 >f; sed -i s/5/five/ f; cat f; awk "{ s += \$1 } END { print s }" f; grep -c . f; find . -type f | sort; xargs -n 3 echo <f'
	done
}

t_env_i() {
	claim 'a login-like shell with everything matched'
	glob='/**'
	settings
	run env -i "${vars[@]}" PATH=/usr/bin:/bin bash -c 'id -u; ls / >/dev/null; ps -e >/dev/null 2>&1; getent passwd root; date +%Y >/dev/null; hostname >/dev/null 2>&1; cat /proc/self/maps | grep -c . >/dev/null; df / >/dev/null'
	is 0; silent
}

each_user t_env_i
each t_programs
exit $failed
