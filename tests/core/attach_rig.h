/* SPDX-License-Identifier: MIT */
/*
 * A handle in a process that is no relative by fork: it is made from the descriptors of one who has it. The
 * newcomers of these tests are forked before there is any handle, and get the descriptors over a socket. In
 * them nothing is asserted: they tell by their exit status, and by words on the board.
 */
#ifndef ATTACH_RIG_H
#define ATTACH_RIG_H

#include "board.h"
#include <sys/socket.h>

enum { NPAGES = 64, WAIT_MSEC = 5000 };

static unsigned attach_msec = WAIT_MSEC;
static int line[2]; /* of the owner, of the newcomers */

static inline char *at(char *m, uint64_t pg)
{
	return m + pg * VM_PAGE;
}

/* ---- handing over ---- */

union control {
	char room[CMSG_SPACE(VM_SHARE_NFDS * sizeof(int))];
	struct cmsghdr align;
};

static inline void send_fds(int s, const int *fds)
{
	union control c = {0};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
	struct cmsghdr *h = CMSG_FIRSTHDR(&msg);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(VM_SHARE_NFDS * sizeof(int));
	memcpy(CMSG_DATA(h), fds, VM_SHARE_NFDS * sizeof(int));
	assert_int_equal(sendmsg(s, &msg, 0), 1);
}

static inline void receive_fds(int s, int *fds)
{
	union control c;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};

	fds[0] = fds[1] = -1;
	if (recvmsg(s, &msg, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&msg))
		memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), VM_SHARE_NFDS * sizeof(int));
}

/* Before anything is open. */
static inline void begin(struct rig *r, uint64_t size)
{
	clear_board();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
	r->f = rig_file_make(size);
}

static inline void give(struct rig *r)
{
	int fds[VM_SHARE_NFDS];

	assert_int_equal(vm_fileh_share(r->h, fds), 0);
	send_fds(line[0], fds);
}

static inline void open_here(struct rig *r)
{
	r->h = rig_handle(r->f, r->load);
}

static inline int attach(struct rig *r, const int *fds)
{
	return vm_fileh_attach(&r->f->file, NULL, fds, attach_msec, &r->h);
}

/* In a newcomer: r->h is what the owner gives. */
static inline char *join(struct rig *r)
{
	int fds[VM_SHARE_NFDS], err;
	void *m = NULL;

	receive_fds(line[1], fds);
	err = attach(r, fds);
	(void)close(fds[0]);
	(void)close(fds[1]);
	if (!err)
		err = vm_map(r->h, NULL, NPAGES * VM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0, true, &m);
	if (err)
		_exit(100);
	return m;
}

static inline void finish(struct rig *r)
{
	(void)close(line[0]);
	(void)close(line[1]);
	(void)r;
}

#endif
