// SPDX-License-Identifier: Apache-2.0
// One cache line passed to and fro between two CPUs.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "opd/pchase.h"
#include "placing.h"

struct table {
    _Alignas(128) _Atomic uint32_t ball;
    _Alignas(128) _Atomic uint32_t here;
    _Atomic int error;
    uint32_t rounds;
    int cpu[2];
    double ns;
};

struct player {
    struct table *table;
    uint32_t side;
};

enum { WARM_ROUNDS = 1000 };

static void
play(struct table *table, uint32_t side, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        // Even numbers are the first player's turn.
        while (atomic_load_explicit(&table->ball, memory_order_acquire) != 2 * i + side)
            ;
        atomic_store_explicit(&table->ball, 2 * i + side + 1, memory_order_release);
    }
}

static void *
player_main(void *argument)
{
    const struct player *player = argument;
    struct table *table = player->table;
    int rc = opd_place_cpu(table->cpu[player->side]);
    if (rc)
        atomic_store(&table->error, rc);
    atomic_fetch_add(&table->here, 1);
    while (atomic_load(&table->here) < 2)
        sched_yield();
    if (atomic_load(&table->error))
        return NULL;
    play(table, player->side, 0, WARM_ROUNDS);
    uint64_t start = opd_raw_ns();
    play(table, player->side, WARM_ROUNDS, WARM_ROUNDS + table->rounds);
    if (player->side == 0)
        table->ns = (double)(opd_raw_ns() - start) / table->rounds / 2;
    return NULL;
}

int
opd_pchase_pass(int first, int second, uint32_t rounds, double *ns)
{
    if (first == second || first < 0 || second < 0 || rounds == 0 || rounds > 100000000)
        return -EINVAL;
    struct table table = {.rounds = rounds, .cpu = {first, second}};
    struct player players[2] = {{&table, 0}, {&table, 1}};
    pthread_t threads[2];
    int error = pthread_create(&threads[0], NULL, player_main, &players[0]);
    if (error)
        return -error;
    error = pthread_create(&threads[1], NULL, player_main, &players[1]);
    if (error) { // the first is told not to wait
        atomic_store(&table.error, -error);
        atomic_fetch_add(&table.here, 1);
    } else {
        pthread_join(threads[1], NULL);
    }
    pthread_join(threads[0], NULL);
    *ns = table.ns;
    return atomic_load(&table.error);
}
