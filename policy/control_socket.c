/* SPDX-License-Identifier: MIT */
/* Where the control socket lies, and who may talk to it. */
#include "control_priv.h"
#include "log.h"
#include "vm_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The directory, opened, when it is ours alone: whoever can put a socket there can take our orders. */
int pol_runtime_dir_open(const char *dir, bool create, int *ret_fd, char *why, size_t whylen)
{
	struct stat st;
	int fd, err;

	err = create ? vm_sys->mkdirat(AT_FDCWD, dir, 0700) : 0;
	if (err && err != -EEXIST) {
		(void)snprintf(why, whylen, "%s: cannot create the directory: %s", dir, pol_errno_name(err));
		return err;
	}
	fd = vm_sys->openat(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (fd == -ELOOP || fd == -ENOTDIR) {
		(void)snprintf(why, whylen, "%s: not a directory, or a symbolic link", dir);
		return fd;
	}
	if (fd < 0) {
		(void)snprintf(why, whylen, "%s: %s", dir, pol_errno_name(fd));
		return fd;
	}
	err = vm_sys->fstat(fd, &st);
	if (err) {
		(void)snprintf(why, whylen, "%s: %s", dir, pol_errno_name(err));
	} else if (st.st_uid != geteuid()) {
		(void)snprintf(why, whylen, "%s: owned by uid %u, not by us (uid %u)", dir, st.st_uid,
			       geteuid());
		err = -EPERM;
	} else if (st.st_mode & 077) {
		(void)snprintf(why, whylen, "%s: open to others (mode %04o); chmod 0700 it", dir,
			       st.st_mode & 07777);
		err = -EPERM;
	}
	if (err) {
		(void)vm_sys->close(fd); /* nothing was written */
		return err;
	}
	*ret_fd = fd;
	return 0;
}

int pol_socket_name(int fd, int dirfd, const char *name, bool connect_only)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	/* through the descriptor: no limit of 108 bytes, and no other directory in between */
	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%s", dirfd, name);
	return connect_only ? vm_sys->connect(fd, (struct sockaddr *)&addr, sizeof(addr))
			    : vm_sys->bind(fd, (struct sockaddr *)&addr, sizeof(addr));
}

int pol_socket_new(int type)
{
	return (int)vm_sys_fd(SYS_socket, AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0);
}

/* A socket that nobody listens at any more: of a process that had this pid, or of this one before an exec. */
static bool is_stale(int dirfd, const char *name, int type)
{
	int fd = pol_socket_new(type);
	struct stat st;
	bool stale;

	if (fd < 0)
		return false;
	stale = !vm_sys->fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISSOCK(st.st_mode) &&
		pol_socket_name(fd, dirfd, name, true) == -ECONNREFUSED;
	(void)vm_sys->close(fd); /* nothing was written */
	return stale;
}

bool pol_socket_forget(int dirfd, pid_t pid)
{
	static const struct {
		const char *suffix;
		int type;
	} kinds[] = {{"share", SOCK_SEQPACKET}, {"sock", SOCK_STREAM}};
	char name[2][32];
	struct stat st;

	(void)snprintf(name[0], sizeof(name[0]), "/proc/%d", pid);
	if (vm_sys->fstatat(AT_FDCWD, name[0], &st, 0) != -ENOENT)
		return false;
	for (int i = 0; i < 2; i++) {
		(void)snprintf(name[i], sizeof(name[i]), "%d.%s", pid, kinds[i].suffix);
		if (vm_sys->fstatat(dirfd, name[i], &st, AT_SYMLINK_NOFOLLOW) != -ENOENT &&
		    !is_stale(dirfd, name[i], kinds[i].type))
			return false;
	}
	for (int i = 0; i < 2; i++)
		(void)vm_sys->unlinkat(dirfd, name[i], 0); /* litter, if it was there */
	return true;
}

int pol_socket_listen_as(const char *dir, const char *name, int type, int *ret_fd, char *why, size_t whylen)
{
	int dirfd = -1, fd, err, saved = errno;

	err = pol_runtime_dir_open(dir, true, &dirfd, why, whylen);
	if (err)
		goto out;
	fd = pol_socket_new(type);
	if (fd < 0) {
		err = fd;
		goto close_dir;
	}
	err = pol_socket_name(fd, dirfd, name, false);
	if (err == -EADDRINUSE && is_stale(dirfd, name, type)) {
		err = vm_sys->unlinkat(dirfd, name, 0);
		if (!err)
			err = pol_socket_name(fd, dirfd, name, false);
	}
	if (!err && listen(fd, SOMAXCONN))
		err = -errno;
	if (err)
		(void)vm_sys->close(fd); /* was never used */
	else
		*ret_fd = fd;
close_dir:
	if (err == -EADDRINUSE)
		(void)snprintf(why, whylen, "%s/%s: something else is there", dir, name);
	else if (err)
		(void)snprintf(why, whylen, "%s/%s: %s", dir, name, pol_errno_name(err));
	(void)vm_sys->close(dirfd); /* only looked at */
out:
	errno = saved;
	return err;
}

int pol_socket_listen(const char *dir, pid_t pid, int *ret_fd, char *why, size_t whylen)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "%d.sock", pid);
	return pol_socket_listen_as(dir, name, SOCK_STREAM, ret_fd, why, whylen);
}

void pol_socket_unlink(const char *dir, pid_t pid)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "%d.sock", pid);
	pol_socket_unlink_as(dir, name);
}

void pol_socket_unlink_as(const char *dir, const char *name)
{
	int dirfd = vm_sys->openat(AT_FDCWD, dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

	if (dirfd < 0)
		return;
	(void)vm_sys->unlinkat(dirfd, name, 0); /* a stale one is harmless */
	(void)vm_sys->close(dirfd);		/* only looked at */
}

bool pol_socket_peer_is_allowed(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (vm_sys->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return false;
	return peer.uid == 0 || peer.uid == geteuid();
}
