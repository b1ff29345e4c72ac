/* SPDX-License-Identifier: MIT */
/* The control socket's language: a line of words in, a line of JSON out. */
#include "control_priv.h"
#include "log.h"
#include "vm_sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define OUT_FIRST 16384u

static bool reserve(struct pol_out *o, size_t more)
{
	size_t cap = o->cap ? o->cap : OUT_FIRST;
	void *mem;

	if (o->failed)
		return false;
	while (cap - o->len < more)
		cap *= 2;
	if (cap == o->cap)
		return true;
	if (o->mem)
		mem = vm_own_grow(o->mem, o->cap, cap);
	else
		mem = vm_own_map(cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (vm_sys_err(mem)) {
		o->failed = true;
		return false;
	}
	o->mem = mem;
	o->cap = cap;
	return true;
}

void pol_out_free(struct pol_out *o)
{
	if (o->mem)
		(void)vm_sys->munmap(o->mem, o->cap); /* ours, whole: cannot fail */
	*o = (struct pol_out){0};
}

static void put(struct pol_out *o, const char *text, size_t len)
{
	if (!reserve(o, len))
		return;
	memcpy(o->mem + o->len, text, len);
	o->len += len;
}

static void put_format(struct pol_out *o, const char *fmt, va_list ap)
{
	char text[512];
	int len = vsnprintf(text, sizeof(text), fmt, ap);

	put(o, text, len < (int)sizeof(text) ? (size_t)len : sizeof(text) - 1);
}

void pol_out_text(struct pol_out *o, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put_format(o, fmt, ap);
	va_end(ap);
}

/* Length of the UTF-8 sequence at p, 0: none. */
static size_t utf8_len(const unsigned char *p)
{
	size_t len = *p < 0x80 ? 1 : *p >= 0xc2 && *p < 0xe0 ? 2 : *p >= 0xe0 && *p < 0xf0 ? 3 : 0;

	if (*p >= 0xf0 && *p < 0xf5)
		len = 4;
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] >= 0xa0) || (*p == 0xf0 && p[1] < 0x90) ||
	    (*p == 0xf4 && p[1] >= 0x90))
		return 0; /* too long a form, a surrogate, beyond Unicode */
	return len;
}

void pol_out_string(struct pol_out *o, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	put(o, "\"", 1);
	while (*p) {
		size_t len = utf8_len(p);

		if (!len)
			pol_out_text(o, "\\udc%02x", *p);
		else if (*p == '"' || *p == '\\')
			pol_out_text(o, "\\%c", *p);
		else if (*p < ' ' || *p == 0x7f)
			pol_out_text(o, "\\u%04x", *p);
		else
			put(o, (const char *)p, len);
		p += len ? len : 1;
	}
	put(o, "\"", 1);
}

void pol_out_error(struct pol_out *o, int err, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a longer line is cut */
	va_end(ap);
	pol_out_text(o, "{\"ok\":false,\"errno\":\"%s\",\"error\":", pol_errno_name(err));
	pol_out_string(o, text);
	pol_out_text(o, "}\n");
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* One word at line, decoded in place. Returns where the next begins, NULL: a bad %XX. */
static char *take_word(char *line, char **ret_word)
{
	char *to = line;

	*ret_word = line;
	for (; *line && *line != ' '; line++) {
		if (*line != '%') {
			*to++ = *line;
			continue;
		}
		if (hex_digit(line[1]) < 0 || hex_digit(line[2]) < 0)
			return NULL;
		*to = (char)(hex_digit(line[1]) << 4 | hex_digit(line[2]));
		if (!*to++) /* no name holds a zero byte */
			return NULL;
		line += 2;
	}
	while (*line == ' ')
		line++;
	*to = 0;
	return line;
}

int pol_request_parse(char *line, struct pol_request *ret, const char **ret_why)
{
	*ret = (struct pol_request){0};
	while (*line == ' ')
		line++;
	while (*line) {
		*ret_why = "too many words";
		if (ret->nwords == POL_REQUEST_WORDS)
			return -EINVAL;
		*ret_why = "a % that is not followed by two hexadecimal digits (and not %00)";
		line = take_word(line, &ret->words[ret->nwords++]);
		if (!line)
			return -EINVAL;
	}
	*ret_why = "an empty request";
	return ret->nwords ? 0 : -EINVAL;
}
