/* SPDX-License-Identifier: MIT */
/* Random numbers: a stream for each operation. */
#include "fsx.h"
#include <string.h>

static uint64_t state;

void random_begin(uint64_t seed, uint64_t index)
{
	state = seed * 0x9e3779b97f4a7c15u ^ (index + 1) * 0xd1342543de82ef95u;
	(void)rnd();
}

uint64_t rnd(void) /* splitmix64 */
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t below(uint64_t n)
{
	return n ? rnd() % n : 0;
}

uint64_t between(uint64_t a, uint64_t b)
{
	return a + below(b - a + 1);
}

bool one_in(unsigned n)
{
	return below(n) == 0;
}

uint64_t skewed(uint64_t n)
{
	uint64_t bits = 0;

	while (bits < 63 && n >> bits)
		bits++;
	return n ? below(below(n >> below(bits) ?: 1) + 1) : 0;
}

/* A page's start, or a few bytes beside it. */
static uint64_t near_page(uint64_t npages)
{
	uint64_t at = below(npages + 1) * PAGE + 2;

	return at - (one_in(3) ? 2 : below(5));
}

uint64_t random_size(void)
{
	uint64_t size;

	switch (below(8)) {
	case 0:
		return below(2) ? 0 : below(PAGE);
	case 1:
	case 2:
		size = near_page(16);
		break;
	case 3:
		size = near_page(set.max_size / PAGE);
		break;
	case 4:
		size = below(set.max_size);
		break;
	default:
		size = below(20 * PAGE);
	}
	return size < set.max_size ? size : set.max_size;
}

uint64_t random_off(const struct file *f)
{
	uint64_t off;

	switch (below(8)) {
	case 0:
		off = f->size > 3 ? f->size - below(4) : below(4);
		break;
	case 1:
	case 2:
		off = near_page(npages_of(f->size));
		break;
	case 3:
		off = random_size();
		break;
	default:
		off = below(f->size);
	}
	return off < set.max_size ? off : set.max_size - 1;
}

size_t random_len(void)
{
	switch (below(10)) {
	case 0:
		return PAGE * between(1, 4);
	case 1:
		return PAGE + below(5) - 2;
	case 2:
		return between(1, 1u << 16);
	case 3:
	case 4:
		return between(1, 3 * PAGE);
	default:
		return between(1, 64);
	}
}

void random_bytes(void *buf, size_t len)
{
	uint8_t *p = buf;
	uint64_t v = 0;

	for (size_t i = 0; i < len; i++, v >>= 8) {
		if (i % 8 == 0)
			v = rnd() | 0x0101010101010101u; /* no zeros: those are what is there by mistake */
		p[i] = (uint8_t)v;
	}
}
