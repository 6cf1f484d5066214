/* killer.h: kill schedulers in a background thread while the test works. */
#ifndef GP_TEST_KILLER_H
#define GP_TEST_KILLER_H

#include <pthread.h>
#include <stdatomic.h>

#include "tests/service/pools.h"

/* Return the pid in the pool's lock file, written by the lock holder. */
static inline pid_t holder(void)
{
    char path[100];
    int pid = 0;

    snprintf(path, sizeof(path), "%s/run/default/lock", pools_root);
    FILE *file = fopen(path, "r");

    if (file != NULL && fscanf(file, "%d", &pid) != 1)
        pid = 0;
    if (file != NULL)
        fclose(file);
    return pid;
}

typedef struct scheduler_killer {
    pthread_t thread;
    int first_ms, every_ms, times;
    atomic_int killed;
    atomic_bool stop;
} scheduler_killer;

static inline void *killer_main(void *context)
{
    scheduler_killer *k = context;
    pid_t last = 0;

    gp_sleep_ms(k->first_ms);
    while (!k->stop && k->killed < k->times) {
        pid_t pid = holder();

        if (pid > 0 && pid != last && process_alive(pid) && kill(pid, SIGKILL) == 0) {
            k->killed++;
            last = pid;
        }
        gp_sleep_ms(pid == last && k->every_ms < 5 ? 1 : k->every_ms);
    }
    return NULL;
}

static inline void killer_start(scheduler_killer *k)
{
    if (pthread_create(&k->thread, NULL, killer_main, k) != 0)
        abort();
}

static inline int killer_join(scheduler_killer *k)
{
    k->stop = true;
    pthread_join(k->thread, NULL);
    return k->killed;
}

#endif
