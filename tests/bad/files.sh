#!/bin/bash
# SPDX-License-Identifier: MIT
# A rule matches what cannot be managed: mmap fails as it should, in one clear line, or the program goes on by
# on_error=passthrough; nothing hangs.
. "$(dirname "$0")/lib.sh"

cat >"$work/bin/try.py" <<'PY'
# try.py FILE ro|rw|wo PROT LEN: "open ..." and "mmap ..." each ok or an errno
import errno, mmap, os, sys
path, how, prot, length = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
def name(e): return errno.errorcode.get(e.errno, str(e))
try:
    fd = os.open(path, {"ro": os.O_RDONLY, "rw": os.O_RDWR, "wo": os.O_WRONLY}[how] | os.O_NONBLOCK)
    print("open ok")
except OSError as e:
    print("open", name(e)); sys.exit()
flags = mmap.MAP_PRIVATE if "p" in prot else mmap.MAP_SHARED
p = (mmap.PROT_READ if "r" in prot else 0) | (mmap.PROT_WRITE if "w" in prot else 0)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
a = libc.mmap(None, length, p, flags, fd, 0)
if a == ctypes.c_void_p(-1).value:
    print("mmap", errno.errorcode[ctypes.get_errno()])
else:
    print("mmap ok")
    if "w" in prot: ctypes.memset(a, 0x41, 1)
    elif "r" in prot and "x" not in prot: print("byte", ctypes.string_at(a, 1)[0])
sys.exit()
PY
try() { # FILE HOW PROT LEN: natively and under txmap
	run python3 "$work/bin/try.py" "$@"
	local want=$out
	under python3 "$work/bin/try.py" "$@"
	native=$want
}
same() { [ "$out" = "$native" ] || bad "natively it says $native"; }
command -v python3 >/dev/null || { echo 'no python3 here'; exit 77; }

t_odd_files() {
	claim 'a directory, with a rule that matches it'
	mkdir sub; chmod 755 sub
	try sub ro r 4096; same; silent

	claim 'a FIFO: neither open nor mmap hangs'
	mkfifo -m 666 fifo
	lib_limit=20
	try fifo ro r 4096; same
	try fifo rw rw 4096; same
	lib_limit=120

	claim 'a socket'
	python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
	try sock ro r 4096; same

	claim 'devices: private mappings are the kernel'\''s; shared ones are refused in one line'
	glob='/dev/**'
	try /dev/zero rw rwp 4096; same; silent
	try /dev/zero ro rp 4096; same; silent
	try /dev/null rw rw 4096; same
	try /dev/zero rw rw 4096
	says '^mmap ENODEV'; one_line; errs '/dev/zero: .* is a device'
	set=on_error=passthrough
	try /dev/zero rw rw 4096; same; errs '/dev/zero: .*passthrough'
	set=''
	claim 'devices that are only read and written say nothing'
	under sh -c 'cat /dev/null; head -c 5 /dev/zero >/dev/null; echo hi >/dev/null'
	is 0; silent
	glob="$dir/**"
	unset glob

	claim 'an empty file'
	make_file empty x 0
	try empty rw rw 4096; same # a store beyond the end is SIGBUS
	try empty rw r 4096; same
	try empty rw r 0; same
	make_file small x 10
	try small rw rw 0; same
	try small rw rw -1; same
	try small wo rw 4096; same
	try small ro rw 4096; same
}

t_rights() {
	claim 'a file that may only be read: its mapping is read only, and nothing is left beside it'
	make_file ro.dat x 8192
	chmod 444 ro.dat
	try ro.dat ro r 4096; same; silent
	try ro.dat ro rp 4096; same
	if [ "$who" = ordinary ]; then
		try ro.dat rw rw 4096; same; says 'open EACCES'
		chown 0:0 ro.dat; chmod 644 ro.dat
		try ro.dat ro r 4096; same; silent
		try ro.dat ro rwp 4096; same; silent
		try ro.dat rw rw 4096; same; says 'open EACCES'
	fi
	[ "$(ls -A)" = ro.dat ] || bad "there is more: $(ls -A)"

	[ "$who" = ordinary ] || return
	claim 'a directory in which no journal can be made'
	mkdir closed; make_file closed/f.dat x 8192; chown 0:0 closed; chmod 755 closed
	try closed/f.dat ro r 4096; same; silent
	under python3 "$work/bin/try.py" closed/f.dat rw rw 4096
	holds closed/f.dat xxxx
	says '^mmap EACCES'; errs "$dir/closed/f.dat: .*EACCES"; errs "journal $dir/closed/.f.dat.txmap"
	set=on_error=passthrough
	try closed/f.dat rw rw 4096; same; errs 'warning: .*f.dat: NOT managed'
	holds closed/f.dat Axxx
	set="journal=$dir"
	claim 'a journal elsewhere helps'
	try closed/f.dat rw rw 4096; same; silent
	set=''
}

t_file_systems() {
	[ "$(id -u)" = 0 ] || return
	mkdir mnt
	claim 'a file on tmpfs'
	mount_or_skip -t tmpfs -o size=4m tmpfs "$dir/mnt" || return
	chmod 777 mnt
	make_file mnt/t.dat x 8192
	try mnt/t.dat rw rw 8192; same; silent; holds mnt/t.dat Axxx
	[ "$(ls -A mnt)" = t.dat ] || bad "there is more: $(ls -A mnt)"

	claim 'a file on a read-only file system'
	mount -o remount,ro "$dir/mnt"
	try mnt/t.dat ro r 4096; same; silent
	try mnt/t.dat rw rw 4096; same
	try mnt/t.dat ro rwp 4096; same; silent

	claim 'a file system that cannot map its files: under txmap they are mapped all the same'
	if [ -r /sys/kernel/notes ] || [ -r /sys/kernel/vmcoreinfo ]; then
		local f=/sys/kernel/vmcoreinfo
		[ -r $f ] || f=/sys/kernel/notes
		glob=$f
		try $f ro r 4096
		if [[ $native = *'mmap ENODEV'* ]]; then
			says '^mmap ok'; says "^byte $(od -An -N1 -tu1 $f | tr -d ' ')$"; silent
		fi
		unset glob
	fi

	claim 'hugetlbfs'
	mkdir huge
	mount_or_skip -t hugetlbfs none "$dir/huge" || return
	chmod 777 huge
	: >huge/h.dat; chmod 666 huge/h.dat
	try huge/h.dat rw rw 4096
	says '^mmap '; errs "huge/h.dat: .*hugetlbfs"
	set=on_error=passthrough
	run python3 "$work/bin/try.py" huge/h.dat rw rw 2097152; native=$out
	under python3 "$work/bin/try.py" huge/h.dat rw rw 2097152
	same
	set=''
	umount huge mnt
}

t_again() {
	claim 'what was refused is looked at again when it is opened again'
	make_file a.dat x 8192
	printf 'no journal' >.a.dat.txmap; [ "$who" != ordinary ] || chown 65534 .a.dat.txmap
	start
	order "open $dir/a.dat" ok
	order 'map 0' EUCLEAN
	errs 'a.dat.*no journal'
	order 'close' ok
	rm .a.dat.txmap
	order "open $dir/a.dat" ok
	order 'map 0' ok
	order 'store 0 new' ok
	order 'msync' ok
	holds a.dat newx
	stop; is 0
}

t_unlinked() {
	claim 'a file without a name is the kernel'\''s, and leaves no journal'
	make_file u.dat x 8192
	start
	order "open $dir/u.dat" ok
	order "unlink $dir/u.dat" ok
	order 'map 0' ok; order 'store 0 new' ok; order 'msync' ok; order 'read 0 4' newx
	[ -z "$(ls -A)" ] || bad "there is $(ls -A)"
	order "open /proc/$pid/fd/3" ok
	order 'map 0' ok; order 'load 0 4' newx
	killed
	[ -z "$(ls -A)" ] || bad "there is $(ls -A)"
	silent
}

each_user t_odd_files
each_user t_unlinked
each_user t_rights
each_user t_file_systems
each_user t_again
exit $failed
