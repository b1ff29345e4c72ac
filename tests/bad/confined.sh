#!/bin/bash
# SPDX-License-Identifier: MIT
# Processes that may do little: in another root or namespace, under seccomp filters, without userfaultfd, with no place for
# sockets. Commits hold what they must, or fail and say so; never a commit that lacks stores.
. "$(dirname "$0")/lib.sh"

family() { # HOW... -- WRAPPER...: family.c, which alone commits
	local how=()
	while [ "$1" != -- ]; do how+=("$1"); shift; done
	shift
	make_file a.dat o 64K
	set="${set:-} commit=msync"
	under "$@" "$work/bin/family" a.dat "${how[@]}"
	set=''
}
all_there() {
	is 0; says '^fine$'; holds a.dat ABCDEF; holds a.dat abcde 4096
}

t_family() {
	claim 'parent and child'
	family --; all_there; silent
	[ "$(id -u)" = 0 ] || { echo 'not tried: chroot and namespaces'; return; }
	claim 'in a PID namespace whose /proc is not mounted: the numbers there are others'
	local was=$who ns
	if [ "$who" = self ]; then
		family -- unshare --pid --fork; all_there; silent
		family -- unshare --pid --fork --mount-proc; all_there; silent
		claim 'the parent, or the child, in another root, where there is no /proc'
		mkdir root
		family chroot "$dir/root" --; all_there; silent
		family child "$dir/root" --; all_there; silent
		claim 'a child in a PID namespace of its own has no mapping, and the log says so'
		family newpid --
		is 1; says '^child: signal 11$'; errs 'error: forked child: managed mappings .*EREMOTE'
	fi
	claim 'in a user namespace, alone and with a PID namespace'
	for ns in '-U' '-U -r' '-U -r --pid --fork' '-U -r --pid --fork --mount-proc'; do
		# shellcheck disable=SC2086 # words
		run unshare $ns true
		[ "$status" = 0 ] || { echo "not tried: unshare $ns"; continue; }
		[ "$ns" != -U ] || [ "$who" = ordinary ] || continue # nobody of root's cannot write root's file
		# shellcheck disable=SC2086 # words
		family -- unshare $ns; all_there; silent
	done
	who=$was
}

t_seccomp() {
	local how
	claim 'a filter that refuses what a commit needs: it fails, and the file has the one before'
	make_file a.dat o 64K
	under "$work/bin/locked" a.dat refuse
	[ "$status" != 77 ] || { echo 'not tried: seccomp'; return; }
	is 0; says '^before: ok'; says '^stored: ok'; says '^msync: E'
	txmap recover a.dat; is 0; holds a.dat one
	claim 'one that kills: as it says'
	make_file a.dat o 64K
	under bash -c 'ulimit -c 0; exec "$@"' bash "$work/bin/locked" a.dat kill
	is $((128 + $(kill -l SYS))); says '^before: ok'
	txmap recover a.dat; is 0; holds a.dat one
	claim 'one that lets through what the manual asks for'
	for how in refuse kill; do
		make_file a.dat o 64K
		under "$work/bin/locked" a.dat $how more
		is 0; says '^msync: ok'; says '^munmap: ok'; silent; holds a.dat two
		[ -z "$(ls -A | grep txmap)" ] || bad "left: $(ls -A)"
	done
}

t_setuid() {
	[ "$(id -u)" = 0 ] && [ "$who" = self ] && command -v python3 >/dev/null || return
	cat >"$work/bin/gives_up.py" <<-'PY'
		import mmap, os, sys
		os.setgroups([]); os.setgid(65534); os.setuid(65534)
		fd = os.open(sys.argv[1], os.O_RDWR)
		try: m = mmap.mmap(fd, 0)
		except OSError as e: print(e.errno); sys.exit()
		m[0:3] = b"one"; m.flush()
		if os.fork() == 0: m[3:6] = b"two"; m.flush(); os._exit(0)
		os.wait(); print(os.pread(fd, 6, 0))
	PY
	claim 'the first mapping after setuid(): segv, since the kernel closes /proc/self/pagemap to it'
	make_file a.dat o 64K
	chown -R 65534 .
	under python3 "$work/bin/gives_up.py" a.dat
	is 0; says "b'onetwo'"; errs 'warning: no control socket: '; errs 'engine segv is in use: /proc/self/pagemap'; holds a.dat onetwo
	claim 'where uffd was asked for by name it is refused, and said'
	set=engine=uffd
	under python3 "$work/bin/gives_up.py" a.dat
	is 0; says '^13$'; errs 'engine = uffd: not available any more: /proc/self/pagemap'; holds a.dat onetwo
}

t_containers() {
	[ "$(id -u)" = 0 ] && [ "$who" = self ] && unshare --pid --fork --mount-proc true 2>/dev/null || return
	claim 'two that have the same number, and one runtime directory: each has its file, and the one the other has is refused'
	printf '#!/bin/sh\nexec unshare --pid --fork --kill-child --mount-proc "%s"\n' "$poke" >contained
	chmod 755 contained
	local poke=$dir/contained
	make_file a.dat o 64K
	make_file b.dat o 64K
	start first
	order "open $dir/a.dat" ok; order 'map 0' ok; order 'store 0 one' ok
	start second
	order "open $dir/b.dat" ok; order 'map 0' ok; order 'store 0 two' ok; order msync ok; holds b.dat two
	errs 'b.dat: other processes cannot share it'
	order "open $dir/a.dat" ok; order 'map 0' EBUSY; errs 'a.dat: journal .*: EBUSY'; order 'read 0 3' ooo
	use first; order msync ok; silent; holds a.dat one
	stop; is 0
	use second; stop; is 0
	under sh -c 'echo "open $1" | "$0"' "$poke" "$dir/a.dat"; is 0
}

t_without() {
	claim 'userfaultfd not permitted: segv, and one line that says so, and why'
	make_file a.dat o 64K
	make_file b.dat o 64K
	printf '%s\n' "open $dir/b.dat" 'map 0' 'store 0 two' "open $dir/a.dat" 'map 0' 'store 0 one' 'msync' 'unmap' >orders
	under "$work/bin/without" sh -c 'exec "$0" <orders' "$poke"
	is 0; one_line; errs 'warning: engine segv is in use: userfaultfd\(2\) is not permitted'; holds a.dat one; holds b.dat two
	claim 'asked for by name it is refused before main'
	set=engine=uffd
	under "$work/bin/without" true
	is 78; one_line; errs 'engine = uffd: not available here: userfaultfd\(2\) is not permitted'
	claim 'doctor says it'
	set=''
	run "$work/bin/without" "$txmap" doctor
	is 0; says 'warn +engine +segv: userfaultfd\(2\) is not permitted'; says 'sysctl vm.unprivileged_userfaultfd=1'
	run unshare --pid --fork "$txmap" doctor
	[ "$status" != 0 ] || says 'warn +/proc +is that of another PID namespace'
}

t_nowhere() {
	local as_=''
	claim 'no runtime directory, and none can be made: alone, and it works'
	make_file a.dat o 64K
	printf '%s\n' "open $dir/a.dat" 'map 0' 'store 0 one' 'msync' 'unmap' >orders
	runtime=/proc/nowhere under sh -c 'exec "$0" <orders' "$poke"
	is 0; holds a.dat one
	[ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { echo 'not tried: mounts'; return; }
	claim 'it is read-only, and there is no /dev/shm'
	[ "$who" != ordinary ] || as_='setpriv --reuid=65534 --regid=65534 --clear-groups'
	make_file a.dat o 64K
	settings
	local was=$who
	who=self
	# shellcheck disable=SC2016 # of the inner shell
	run unshare -m sh -c 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && { umount -l /dev/shm 2>/dev/null
		mount -t tmpfs -o ro,mode=0 none /dev/shm; }; shift; exec "$@" <orders' sh "$runtime" env "${vars[@]}" $as_ "$poke"
	who=$was
	is 0; says '^ok$'; holds a.dat one
}

each t_family
each t_seccomp
each_user t_setuid
each t_containers
each_user t_without
each_user t_nowhere
exit $failed
