/* Implement forks.h with pthread_atfork(). */
#include "common/base/system/forks.h"

#include <pthread.h>

static uint32_t forks;

/* Count a fork(). The child runs this handler before its fork() returns. */
static void forks_count(void)
{
    forks++;
}

/* Install the handler before main(). */
__attribute__((constructor)) static void forks_watch(void)
{
    pthread_atfork(NULL, NULL, forks_count);
}

uint32_t gp_forks(void)
{
    return forks;
}
