// SPDX-License-Identifier: MIT
// Load for a Berkeley DB environment: transactions of 20 records, a checkpoint now and then. Joins, and
// recovers, what an earlier one left.
//
//	bdb_load DIRECTORY TRANSACTIONS

#include <db.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "%s: %s\n", what, db_strerror(err));
	exit(1);
}

static void put(DB *db, DB_TXN *txn, int number, char fill)
{
	char name[32], value[100];
	DBT key = {.data = name}, data = {.data = value, .size = sizeof value};

	key.size = (u_int32_t)snprintf(name, sizeof name, "k%d", number);
	memset(value, fill, sizeof value);
	check(db->put(db, txn, &key, &data, 0), "put");
}

int main(int argc, char **argv)
{
	DB_ENV *env;
	DB *db;
	DB_TXN *txn;

	if (argc != 3)
		return 2;
	check(db_env_create(&env, 0), "db_env_create");
	check(env->set_flags(env, DB_TXN_NOSYNC, 1), "set_flags");
	check(env->open(env, argv[1],
			DB_CREATE | DB_INIT_MPOOL | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_TXN | DB_RECOVER,
			0644),
	      "open environment");
	check(db_create(&db, env, 0), "db_create");
	check(db->open(db, NULL, "t.db", NULL, DB_BTREE, DB_CREATE | DB_AUTO_COMMIT, 0644), "open t.db");
	for (int i = 0; i < atoi(argv[2]); i++) {
		check(env->txn_begin(env, NULL, &txn, 0), "txn_begin");
		for (int j = 0; j < 20; j++)
			put(db, txn, (i * 20 + j * 7919) % 100000, (char)('a' + i % 26));
		check(txn->commit(txn, 0), "commit");
		if (i % 100 == 0)
			check(env->txn_checkpoint(env, 0, 0, 0), "checkpoint");
	}
	check(db->close(db, 0), "close t.db");
	check(env->close(env, 0), "close environment");
	return 0;
}
