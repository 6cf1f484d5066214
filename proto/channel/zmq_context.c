/* Reference-counted ZeroMQ context (zmq_context.h). */
#include "proto/channel/zmq_context.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/system/forks.h"
#include "proto/channel/channel.h"

enum { SOCKETS_MAX = 1023 };

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static void *context;
static unsigned context_users;
static uint32_t context_forks; /* gp_forks() when the context was created */

/* Does not take the lock: a thread of the parent may have held it during fork(). */
gp_status gp_channel_check_process(gp_error *err)
{
    if (context_users == 0 || context_forks == gp_forks())
        return GP_OK;
    return gp_fail(err, GP_ESTATE,
                   "process %d was forked from a process with an open pool; open pools after fork(), or call "
                   "exec in the child",
                   (int)getpid());
}

void *gp_zmq_acquire(gp_error *err)
{
    enum { NEEDED = 16 };
    int fds[NEEDED], count = 0;

    /* Check that enough descriptors are free for a new socket: libzmq aborts the process if an
     * internal thread cannot get one. EBADF: stderr is closed, so there is nothing to duplicate. */
    while (count < NEEDED && (fds[count] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    bool enough = count == NEEDED || errno == EBADF;

    while (count > 0)
        close(fds[--count]);
    if (!enough) {
        gp_fail(err, GP_ELIMIT, "too few file descriptors for a ZeroMQ socket; raise ulimit -n");
        return NULL;
    }
    pthread_mutex_lock(&context_lock);
    if (context_users == 0) {
        context = zmq_ctx_new();
        if (context == NULL) {
            gp_fail_errno(err, GP_ELIMIT, "cannot create a ZeroMQ context");
        } else {
            context_forks = gp_forks();
            zmq_ctx_set(context, ZMQ_BLOCKY, 0);
            zmq_ctx_set(context, ZMQ_MAX_SOCKETS, SOCKETS_MAX);
        }
    }
    void *acquired = context;

    if (acquired != NULL)
        context_users++;
    pthread_mutex_unlock(&context_lock);
    return acquired;
}

void gp_zmq_release(void)
{
    pthread_mutex_lock(&context_lock);
    assert(context_users > 0);
    if (--context_users == 0) {
        while (zmq_ctx_term(context) != 0 && errno == EINTR)
            ;
        context = NULL;
    }
    pthread_mutex_unlock(&context_lock);
}
