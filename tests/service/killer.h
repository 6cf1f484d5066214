/* killer.h -- who kills schedulers and workers while others work. */
#ifndef GP_TEST_KILLER_H
#define GP_TEST_KILLER_H

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/service/pools.h"

/* Processes whose environment has our directories, daemons and jobs; name: only those of that program (NULL = all). */
static inline uint32_t pool_processes(const char *name, pid_t *out, uint32_t max)
{
    DIR *all = opendir("/proc");
    uint32_t count = 0;

    for (struct dirent *entry; (entry = readdir(all)) != NULL && count < max;) {
        char path[300], text[1 << 15], comm[32] = "";
        int pid = atoi(entry->d_name);
        ssize_t got = -1;

        if (pid <= 1 || pid == (int)getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        FILE *file = name == NULL ? NULL : fopen(path, "re");

        if (file != NULL) {
            if (fscanf(file, "%31s", comm) != 1)
                comm[0] = '\0';
            fclose(file);
        }
        if (name != NULL && strncmp(comm, name, 15) != 0)
            continue;
        snprintf(path, sizeof(path), "/proc/%d/environ", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd >= 0) {
            got = read(fd, text, sizeof(text) - 1);
            close(fd);
        }
        if (got > 0 && memmem(text, (size_t)got, pools_root, strlen(pools_root)) != NULL)
            out[count++] = pid;
    }
    closedir(all);
    return count;
}

/* Who holds the pool's lock says so in it. */
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

/* Whichever.  Returns how many were killed. */
static inline int kill_a_worker(unsigned *seed)
{
    pid_t pids[64];
    uint32_t count = pool_processes("gradpool-worker", pids, 64);

    return count > 0 && kill(pids[(uint32_t)rand_r(seed) % count], SIGKILL) == 0;
}

static inline int killer_join(scheduler_killer *k)
{
    k->stop = true;
    pthread_join(k->thread, NULL);
    return k->killed;
}

#endif
