/* SPDX-License-Identifier: MIT */
/* Between control*.c; share*.c uses the sockets, backend_file_join.c the runtime directory. Nobody else
 * includes this. */
#ifndef POL_CONTROL_PRIV_H
#define POL_CONTROL_PRIV_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define POL_REQUEST_MAX 16384u /* bytes of one request, without its newline: two paths fit */

/* ---- control_proto.c: words in, JSON out ---- */

/* A growing buffer, from the kernel and not from malloc: the thread runs inside strangers' processes. */
struct pol_out {
	char *mem;
	size_t len, cap;
	bool failed; /* no memory: what was written is incomplete */
};
void pol_out_free(struct pol_out *o);
void pol_out_text(struct pol_out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes. A byte that is not UTF-8 becomes a lone surrogate (U+DC80 + its low bits),
 * as Python's surrogateescape does, so that no name is lost. */
void pol_out_string(struct pol_out *o, const char *text);
/* {"ok":false,...} and a newline. */
void pol_out_error(struct pol_out *o, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#define POL_REQUEST_WORDS 5
struct pol_request {
	int nwords;
	char *words[POL_REQUEST_WORDS];
};
/* Split a line (zero-terminated, without its newline) in place into words, %XX decoded. 0, or -EINVAL and
 * why. */
int pol_request_parse(char *line, struct pol_request *ret, const char **ret_why);

/* ---- control_request.c ---- */

/* Do what a line asks for; one line of JSON into o. */
void pol_request_serve(char *line, struct pol_out *o);

/* ---- control_client.c ---- */

/* A connection. Only the helper thread touches it. */
struct pol_client {
	int fd;		      /* -1: free */
	bool eof;	      /* nothing more will come */
	bool closing;	      /* gone once out is sent */
	bool draining;	      /* out is sent: only waiting for the other side to have read it */
	uint64_t active_usec; /* when it last did something */
	size_t drained;	      /* bytes thrown away */
	size_t in_len;
	char in[POL_REQUEST_MAX + 1];
	struct pol_out out; /* the reply being sent: nothing more is read before it is through */
	size_t sent;
};
uint64_t pol_client_now(void);
/* c->fd is a new connection, adopted. */
void pol_client_begin(struct pol_client *c);
/* Send, receive, answer one request at most, so that no client keeps the others waiting. Returns whether more
 * is at hand. c may be free afterwards. */
bool pol_client_serve(struct pol_client *c);
void pol_client_close(struct pol_client *c);

/* ---- control_socket.c ---- */

/* The runtime directory, when nobody else can put anything there. 0, or -errno with the reason in why. The
 * descriptor is the caller's to close. */
int pol_runtime_dir_open(const char *dir, bool create, int *ret_fd, char *why, size_t whylen);
/* A socket of ours, non-blocking: its number, or -errno. */
int pol_socket_new(int type);
/* bind or connect fd, by a name in the directory. */
int pol_socket_name(int fd, int dirfd, const char *name, bool connect_only);
/* pol_socket_listen and pol_socket_unlink of another name and type. */
int pol_socket_listen_as(const char *dir, const char *name, int type, int *ret_fd, char *why, size_t whylen);
void pol_socket_unlink_as(const char *dir, const char *name);
/* Create dir if need be and listen at dir/PID.sock. 0 and a descriptor, or -errno with the reason in why. */
int pol_socket_listen(const char *dir, pid_t pid, int *ret_fd, char *why, size_t whylen);
void pol_socket_unlink(const char *dir, pid_t pid);
/* Is process pid no more? Then its sockets go. A number that is nobody's here may be somebody's in another
 * PID namespace: who listens lives. */
bool pol_socket_forget(int dirfd, pid_t pid);
/* May the process at the other end give orders? */
bool pol_socket_peer_is_allowed(int fd);

#endif
