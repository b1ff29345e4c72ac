/* SPDX-License-Identifier: MIT */
/*
 * The socket by which processes give each other a file's memory, with any bytes at the other end: who is asked
 * gives nothing that it does not have, who asks takes what makes sense or says -EPROTO, and no descriptor that
 * came along stays open. The first byte: odd: a request, even: an answer, the next bits: so many descriptors.
 */
#define _GNU_SOURCE 1
#include "fuzz.h"
#include "share_socket.c"

#include <dirent.h>

#define NFDS_MAX 7

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	CLAIM(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void send_packet(int s, const uint8_t *in, size_t len, unsigned nfds)
{
	struct iovec iov = {(void *)(uintptr_t)in, len};
	char room[CMSG_SPACE(NFDS_MAX * sizeof(int))] __attribute__((aligned(8))) = {0};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		struct cmsghdr *c;
		int fds[NFDS_MAX];

		for (unsigned i = 0; i < nfds; i++)
			fds[i] = s;
		msg.msg_control = room;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	CLAIM(sendmsg(s, &msg, MSG_NOSIGNAL) == (ssize_t)len);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	/* no rule, no file: nothing to give */
	CLAIM(!unsetenv("TXMAP_PATHS") && !unsetenv("TXMAP_CONFIG") && pol_start() == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len)
{
	unsigned how = len ? *in : 0, nfds = (how >> 1) % (NFDS_MAX + 1), before = count_fds();
	int s[2], fds[POL_SHARE_NFDS];
	struct answer a;

	CLAIM(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s));
	send_packet(s[0], in + !!len, len - !!len, nfds);
	if (how & 1) {
		answer(s[1]);
		CLAIM(recv(s[0], &a, sizeof(a), MSG_DONTWAIT) == sizeof(a));
		CLAIM(a.magic == MAGIC && a.version == VERSION && a.err < 0 && !a.nfds);
	} else {
		enum pol_share_what what = how & 128 ? POL_SHARE_HANDLE : POL_SHARE_JOURNAL;
		int err = receive(s[1], what, fds);
		unsigned wanted = what == POL_SHARE_HANDLE ? VM_SHARE_NFDS : 1;

		CLAIM(err <= 1 && err >= -4095);
		if (!err) {
			CLAIM(nfds == wanted);
			for (unsigned i = 0; i < wanted; i++)
				close(fds[i]);
		}
	}
	close(s[0]);
	close(s[1]);
	CLAIM(count_fds() == before);
	return 0;
}
