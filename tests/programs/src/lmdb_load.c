/* SPDX-License-Identifier: MIT */
/*
 * LMDB under load, and its verifier.
 *
 *	lmdb_load write DIR MODE FIRST COUNT [MAPSIZE]	a transaction for each number: 50 keys and "last" = number;
 *							prints "ack NUMBER" once it is committed
 *	lmdb_load verify DIR				every key holds what some transaction up to "last" put there
 *
 * MODE: any of w (MDB_WRITEMAP) a (MDB_MAPASYNC) s (MDB_NOSYNC); n is none of them.
 */
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PUTS = 50, NKEYS = 20000 };

static void must(int err, const char *what)
{
	if (err) {
		fprintf(stderr, "%s: %s\n", what, mdb_strerror(err));
		exit(1);
	}
}

static size_t key_of(char *buf, size_t len, int txn, int i)
{
	return (size_t)snprintf(buf, len, "k%08d", (txn * PUTS + i * 7919) % NKEYS);
}

static void put(MDB_txn *txn, MDB_dbi dbi, char *key, size_t keylen, char *value, size_t len)
{
	MDB_val k = {.mv_size = keylen, .mv_data = key}, v = {.mv_size = len, .mv_data = value};

	must(mdb_put(txn, dbi, &k, &v, 0), "mdb_put");
}

static int write_load(MDB_env *env, int first, int count)
{
	MDB_dbi dbi = 0;

	for (int n = first; n < first + count; n++) {
		char key[32], value[256], ack[32];
		MDB_txn *txn;
		int len;

		must(mdb_txn_begin(env, NULL, 0, &txn), "mdb_txn_begin");
		if (n == first)
			must(mdb_dbi_open(txn, NULL, 0, &dbi), "mdb_dbi_open");
		for (int i = 0; i < PUTS; i++) {
			size_t keylen = key_of(key, sizeof(key), n, i);

			memset(value, 'a' + n % 26, sizeof(value));
			len = snprintf(value, sizeof(value), "t%d", n);
			value[len] = '-';
			put(txn, dbi, key, keylen, value, 100 + (size_t)i);
		}
		len = snprintf(value, sizeof(value), "%d", n);
		memcpy(key, "last", 4);
		put(txn, dbi, key, 4, value, (size_t)len + 1);
		must(mdb_txn_commit(txn), "mdb_txn_commit");
		len = snprintf(ack, sizeof(ack), "ack %d\n", n);
		if (write(STDOUT_FILENO, ack, (size_t)len) != len)
			return 1;
	}
	return 0;
}

static int verify(MDB_env *env)
{
	MDB_val k = {.mv_size = 4, .mv_data = (char[]){'l', 'a', 's', 't'}}, v;
	MDB_txn *txn;
	MDB_dbi dbi;
	MDB_stat st;
	int last, bad = 0;

	must(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "mdb_txn_begin");
	must(mdb_dbi_open(txn, NULL, 0, &dbi), "mdb_dbi_open");
	must(mdb_get(txn, dbi, &k, &v), "last");
	last = atoi(v.mv_data);
	for (int n = 0; n <= last; n++)
		for (int i = 0; i < PUTS; i++) {
			char key[32];
			const char *value;
			int from;

			k.mv_size = key_of(key, sizeof(key), n, i);
			k.mv_data = key;
			if (mdb_get(txn, dbi, &k, &v)) {
				bad++;
				continue;
			}
			value = v.mv_data;
			from = atoi(value + 1);
			bad += from < n || from > last || value[v.mv_size - 1] != 'a' + from % 26;
		}
	must(mdb_stat(txn, dbi, &st), "mdb_stat");
	printf("last=%d entries=%zu bad=%d\n", last, st.ms_entries, bad);
	mdb_txn_abort(txn);
	return bad != 0;
}

int main(int argc, char **argv)
{
	unsigned flags = 0;
	MDB_env *env;
	int ret;

	if (argc != 3 && argc != 6 && argc != 7)
		return 2;
	for (const char *p = argc > 3 ? argv[3] : ""; *p; p++)
		flags |= *p == 'w' ? MDB_WRITEMAP : *p == 'a' ? MDB_MAPASYNC : *p == 's' ? MDB_NOSYNC : 0;
	must(mdb_env_create(&env), "mdb_env_create");
	must(mdb_env_set_mapsize(env, argc > 6 ? strtoul(argv[6], NULL, 10) : 64 << 20), "mdb_env_set_mapsize");
	must(mdb_env_open(env, argv[2], argc > 3 ? flags : MDB_RDONLY, 0644), "mdb_env_open");
	ret = argc > 3 ? write_load(env, atoi(argv[4]), atoi(argv[5])) : verify(env);
	mdb_env_close(env);
	return ret;
}
