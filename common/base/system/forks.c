#include "common/base/system/forks.h"

#include <pthread.h>

static uint32_t forks;

static void forks_count(void)
{
    forks++; /* in the child, before its fork() returns */
}

__attribute__((constructor)) static void forks_watch(void)
{
    pthread_atfork(NULL, NULL, forks_count);
}

uint32_t gp_forks(void)
{
    return forks;
}
