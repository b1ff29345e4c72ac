/* SPDX-License-Identifier: MIT */
/*
 * One connection to the control socket. Nothing here waits: what cannot be sent or received now is tried at
 * the next turn.
 *
 * read and write, not recv and send: those are names that the preloaded object exports. The SIGPIPE of a
 * write to a client that is gone goes to this thread, which has it blocked.
 */
#include "control_priv.h"
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define DRAIN_MAX (16u << 20)

uint64_t pol_client_now(void)
{
	struct timespec ts = {0};

	(void)vm_sys->clock_gettime(CLOCK_MONOTONIC, &ts); /* always there */
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

void pol_client_close(struct pol_client *c)
{
	vm_fd_drop(&c->fd);
	pol_out_free(&c->out);
}

/* Returns whether all is sent; c is free when the other side is gone. */
static bool send_out(struct pol_client *c)
{
	while (c->sent < c->out.len) {
		ssize_t n = vm_sys->write(c->fd, c->out.mem + c->sent, c->out.len - c->sent);

		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return false;
		if (n < 0) {
			pol_client_close(c);
			return false;
		}
		c->sent += (size_t)n;
		c->active_usec = pol_client_now();
	}
	c->sent = c->out.len = 0;
	return true;
}

static void fail(struct pol_client *c, int err, const char *text)
{
	pol_out_error(&c->out, err, "%s", text);
	c->closing = true;
}

void pol_client_begin(struct pol_client *c)
{
	c->eof = c->closing = c->draining = false;
	c->active_usec = pol_client_now();
	c->drained = c->in_len = c->sent = 0;
	if (!pol_socket_peer_is_allowed(c->fd)) {
		fail(c, EPERM, "only the same user and root are served");
		(void)send_out(c);
		if (c->fd >= 0)
			pol_client_close(c);
	}
}

/* Take what has come. Returns false when the other side is gone. */
static bool receive(struct pol_client *c)
{
	ssize_t n;

	if (c->eof || c->in_len == sizeof(c->in))
		return true;
	n = vm_sys->read(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len);
	if (n == -EAGAIN || n == -EINTR)
		return true;
	if (n < 0)
		return false;
	c->eof = n == 0;
	c->in_len += (size_t)n;
	if (n)
		c->active_usec = pol_client_now();
	return true;
}

/* A whole line, if there is one, or what takes its place. */
static void take_request(struct pol_client *c)
{
	char *end = memchr(c->in, '\n', c->in_len);
	size_t len;

	if (!end) {
		if (c->in_len == sizeof(c->in))
			fail(c, EMSGSIZE, "a request is at most 16384 bytes");
		else if (c->eof && c->in_len)
			fail(c, EINVAL, "half a request: no newline at its end");
		return;
	}
	len = (size_t)(end - c->in);
	*end = 0;
	if (strlen(c->in) != len) {
		fail(c, EINVAL, "a zero byte in the request");
		return;
	}
	if (len && c->in[len - 1] == '\r')
		c->in[len - 1] = 0;
	pol_request_serve(c->in, &c->out);
	c->in_len -= len + 1;
	memmove(c->in, end + 1, c->in_len);
}

/* A close while something is still coming would reset the connection, and a client that writes on would never
 * read what was wrong: so the rest is thrown away first, within limits. */
static bool drain(struct pol_client *c)
{
	if (!c->draining && shutdown(c->fd, SHUT_WR)) {
		pol_client_close(c);
		return false;
	}
	c->draining = true;
	c->in_len = 0;
	if (!receive(c) || c->eof || (c->drained += c->in_len) > DRAIN_MAX)
		pol_client_close(c);
	else
		c->in_len = 0;
	return false;
}

bool pol_client_serve(struct pol_client *c)
{
	if (!send_out(c))
		return false;
	if (c->closing)
		return drain(c);
	if (!receive(c)) {
		pol_client_close(c);
		return false;
	}
	take_request(c);
	if (c->out.failed) { /* half a reply would be taken for a whole one */
		pol_log(POL_LOG_WARN, "control socket: no memory for the reply");
		pol_client_close(c);
		return false;
	}
	if (!send_out(c))
		return false;
	if (c->closing)
		return drain(c);
	if (c->eof && !c->in_len) {
		pol_client_close(c);
		return false;
	}
	return c->eof || memchr(c->in, '\n', c->in_len) || c->in_len == sizeof(c->in);
}
