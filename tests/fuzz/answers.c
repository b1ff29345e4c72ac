/* SPDX-License-Identifier: MIT */
/*
 * The txmap command, asking a process that answers with any bytes: it says what it makes of them, and ends with
 * one of its statuses. The first byte says which question, and whether it is for people or as JSON.
 *
 * What finds processes is left out: everybody who is asked is at the other end of a socket pair.
 */
#define _GNU_SOURCE 1
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

/* The command's own main has the fuzzer's name. */
#define main command_main
int command_main(int argc, char **argv);
#include "main.c"
#undef main
#define parse	target_parse
#define cli_ask ask_found
unsigned ask_found(const struct cli_target *t, const char *request, cli_reply_fn *fn, void *arg);
#include "target.c"
#undef parse
#undef cli_ask

static const uint8_t *answer;
static size_t answer_len;

unsigned cli_ask(const struct cli_target *t, const char *request, cli_reply_fn *fn, void *arg)
{
	struct json_object *reply;
	int s[2];

	CLAIM(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s));
	CLAIM(send(s[0], answer, answer_len, MSG_NOSIGNAL) == (ssize_t)answer_len);
	CLAIM(!shutdown(s[0], SHUT_WR));
	reply = converse(s[1], getpid(), request);
	if (!t->json)
		(void)json_c_visit(reply, 0, make_plain, NULL);
	fn(getpid(), reply, arg);
	json_object_put(reply);
	close(s[0]);
	close(s[1]);
	return 1;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	CLAIM(freopen("/dev/null", "w", stdout));
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len)
{
	static char all[] = "--all", json[] = "--json", glob[] = "--path=/srv/*", offset[] = "--offset=4K";
	static char name[] = "txmap";
	unsigned how = len ? *in : 0;
	char *argv[] = {name, how & 8 ? glob : all, how & 4 ? json : NULL, NULL, NULL};
	int argc = how & 4 ? 3 : 2, status;

	answer = in + !!len;
	answer_len = len - !!len;
	switch (how & 3) {
	case 0:
		status = cli_status(argc, argv, false);
		break;
	case 1:
		status = cli_commit(argc, argv, false);
		break;
	case 2:
		status = cli_discard(argc, argv, false);
		break;
	default:
		argv[argc++] = offset;
		status = cli_invalidate(argc, argv, false);
	}
	CLAIM(status == CLI_DONE || status == CLI_FAILED || status == CLI_NO_TARGET || status == CLI_PARTLY);
	return 0;
}
