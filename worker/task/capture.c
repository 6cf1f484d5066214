#include "worker/task/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/system/process.h"
#include "common/base/text/lines.h"
#include "common/base/text/log.h"
#include "proto/task/task_wire.h"

enum {
    OUTPUT_QUEUE_BYTES = 4 << 20,
    RING_BYTES_MAX = GP_LINK_RING_BYTES / 2, /* bytes in the ring above which lines wait */
    READ_BYTES = 64 << 10,
    RETRY_MS = 2,    /* pause while the client does not read */
    FATAL_MS = 1000, /* longest wait for the lock before the process ends */
};

/* Fatal signals that a task can cause. */
static const int fatal[] = { SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV };
enum { FATALS = sizeof(fatal) / sizeof(fatal[0]) };

/* Header of a line in the queue; the text follows, padded to 8 bytes. */
typedef struct queued_line {
    uint64_t call;
    int64_t iteration;
    uint32_t bytes;
    uint16_t flags; /* of the answer */
} queued_line;

struct gp_capture {
    gp_link *link;
    pid_t pid;             /* process of the capture: forked children have a copy */
    pthread_mutex_t lock;  /* guards the answer ring and all members below */
    int pipe_fd, write_fd; /* ends of the pipe; -1: none */
    int stop_fd;           /* eventfd that ends the thread; -1: none */
    size_t pipe_bytes;     /* capacity of the pipe */
    int log_fd, stdout_fd; /* original standard error and standard output; -1: none */
    pthread_t thread;
    bool running; /* the thread was started */

    queued_line tag; /* for new lines; `bytes` is unused */
    gp_lines lines;
    unsigned char *queue; /* OUTPUT_QUEUE_BYTES, used from `head` to `tail` */
    size_t head, tail;
    uint64_t dropped; /* lines dropped since the last GP_ANSWER_DROPPED */

    struct sigaction before[FATALS];
    char bytes[READ_BYTES];
};

/* Capture of this process; NULL: none. */
static _Atomic(gp_capture *) current;

/* ---- lines to the client ---- */

static size_t queued_bytes(size_t text_bytes)
{
    return sizeof(queued_line) + ((text_bytes + 7) & ~(size_t)7);
}

/* Reserve space in the answer ring for a line of `bytes` bytes. NULL: the client reads too
 * slowly. */
static gp_answer *ring_reserve(gp_capture *o, size_t bytes)
{
    return gp_link_unread(o->link) < RING_BYTES_MAX ? gp_link_reserve(o->link, bytes) : NULL;
}

/* Report dropped lines, and move lines from the queue to the ring. */
static void queue_send(gp_capture *o)
{
    gp_answer *answer = o->dropped > 0 ? ring_reserve(o, 0) : NULL;

    if (answer != NULL) {
        answer->kind = GP_ANSWER_DROPPED;
        answer->count = GP_ANSWER_OUTPUT;
        answer->value = o->dropped;
        o->dropped = 0;
    }
    while (o->head < o->tail) {
        const queued_line *line = (const void *)(o->queue + o->head);

        answer = ring_reserve(o, line->bytes);
        if (answer == NULL)
            break;
        answer->kind = GP_ANSWER_OUTPUT;
        answer->flags = line->flags;
        answer->id = line->call;
        answer->value = (uint64_t)line->iteration;
        memcpy(answer->payload, line + 1, line->bytes);
        o->head += queued_bytes(line->bytes);
    }
    if (o->head == o->tail)
        o->head = o->tail = 0;
    gp_link_commit(o->link);
}

/* Append a line to the queue. Implements gp_line_fn. */
static void queue_put(void *context, const char *text, size_t bytes)
{
    gp_capture *o = context;
    size_t needed = queued_bytes(bytes);

    if (needed > OUTPUT_QUEUE_BYTES - o->tail && o->head > 0) {
        memmove(o->queue, o->queue + o->head, o->tail - o->head);
        o->tail -= o->head;
        o->head = 0;
    }
    if (needed > OUTPUT_QUEUE_BYTES - o->tail) {
        o->dropped++;
        return;
    }
    queued_line *line = (void *)(o->queue + o->tail);

    *line = o->tag;
    line->bytes = (uint32_t)bytes;
    memcpy(line + 1, text, bytes);
    o->tail += needed;
}

/* Write bytes to the log. Errors are ignored, as in gp_log(). */
static void log_write(const gp_capture *o, const char *at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t wrote = write(o->log_fd, at, bytes);

        if (wrote < 0 && errno != EINTR)
            return;
        at += wrote > 0 ? wrote : 0;
        bytes -= wrote > 0 ? (size_t)wrote : 0;
    }
}

/* Read the pipe and pass the bytes on. Read at most the capacity of the pipe: a process that writes
 * forever must not keep this thread here. The caller holds the lock.
 *   flush  pass on an incomplete line too */
static void capture_drain(gp_capture *o, bool flush)
{
    for (size_t total = 0; total < o->pipe_bytes;) {
        ssize_t got = read(o->pipe_fd, o->bytes, sizeof(o->bytes));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        log_write(o, o->bytes, (size_t)got);
        gp_lines_feed(&o->lines, o->bytes, (size_t)got, queue_put, o);
        total += (size_t)got;
        gp_fault_point("task_output");
        if ((size_t)got < sizeof(o->bytes))
            break;
    }
    if (flush)
        gp_lines_flush(&o->lines, queue_put, o);
    if (o->head < o->tail || o->dropped > 0)
        queue_send(o);
}

/* ---- the thread ---- */

static void *capture_run(void *context)
{
    gp_capture *o = context;
    struct pollfd fds[] = { { .fd = o->stop_fd, .events = POLLIN }, { .fd = o->pipe_fd, .events = POLLIN } };
    bool waiting = false; /* lines wait for the client */

    for (;;) {
        if (poll(fds, 2, waiting ? RETRY_MS : -1) < 0 && errno != EINTR)
            return NULL;
        if (fds[0].revents != 0)
            return NULL;
        pthread_mutex_lock(&o->lock);
        capture_drain(o, false);
        waiting = o->head < o->tail || o->dropped > 0;
        pthread_mutex_unlock(&o->lock);
        gp_link_ring(o->link);
    }
}

/* ---- the end of the process ---- */

/* Pass on the output of a process that is about to end, and restore the descriptors for messages
 * that follow. Runs in signal handlers: allocates no memory, and gives up if another thread holds
 * the lock, or if the fault happened while this thread held it. */
static void capture_finish(gp_capture *o)
{
    for (int tries = 0; tries < FATAL_MS; tries++) {
        if (pthread_mutex_trylock(&o->lock) == 0) {
            capture_drain(o, true);
            dup2(o->log_fd, STDERR_FILENO);
            dup2(o->stdout_fd, STDOUT_FILENO);
            pthread_mutex_unlock(&o->lock);
            gp_link_ring(o->link);
            return;
        }
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

/* Return the capture if it belongs to this process. */
static gp_capture *capture_own(void)
{
    gp_capture *o = atomic_load(&current);

    return o != NULL && o->pid == getpid() ? o : NULL;
}

static void on_exit_process(void)
{
    gp_capture *o = capture_own();

    if (o == NULL)
        return;
    fflush(stdout);
    capture_finish(o);
}

static void on_fatal(int number, siginfo_t *info, void *context)
{
    gp_capture *o = atomic_load(&current), *own = capture_own();
    int saved = errno;

    (void)context;
    if (own != NULL)
        capture_finish(own);
    for (int i = 0; o != NULL && i < FATALS; i++)
        if (fatal[i] == number)
            sigaction(number, &o->before[i], NULL);
    if (o == NULL)
        signal(number, SIG_DFL);
    /* The instruction of a fault runs again on return, and now meets the previous action. A signal
     * that a process sent does not repeat, so raise it again. */
    if (info->si_code <= 0)
        raise(number);
    errno = saved;
}

/* ---- open and close ---- */

/* Keep a descriptor of the log for the life of the process: other threads may log at any time. */
static int log_open(void)
{
    static int fd = -1;

    if (fd < 0) {
        fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (fd >= 0)
            gp_log_use_fd(fd);
    }
    return fd;
}

static bool same_file(int a, int b)
{
    struct stat of_a, of_b;

    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* Create the pipe and make it this process's standard output and standard error. */
static gp_status capture_redirect(gp_capture *o, gp_error *err)
{
    int ends[2] = { -1, -1 }, capacity;

    fflush(stdout);
    o->log_fd = log_open();
    /* If standard output and standard error are both the log, use one descriptor, which follows the
     * rotation of the log. */
    if (o->log_fd >= 0)
        o->stdout_fd = same_file(STDOUT_FILENO, o->log_fd)
                           ? o->log_fd
                           : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    o->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (o->log_fd < 0 || o->stdout_fd < 0 || o->stop_fd < 0 || pipe2(ends, O_CLOEXEC) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot create a pipe for the output of tasks");
    o->pipe_fd = ends[0];
    o->write_fd = ends[1]; /* stays open, so that poll() never returns end of file */
    capacity = fcntl(o->pipe_fd, F_GETPIPE_SZ);
    o->pipe_bytes = capacity > 0 ? (size_t)capacity : READ_BYTES;
    fcntl(o->pipe_fd, F_SETFL, O_NONBLOCK); /* the write end is another open file: writes block */
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    setvbuf(stdout, NULL, _IOLBF, 0);
    return GP_OK;
}

static void capture_restore(gp_capture *o)
{
    fflush(stdout);
    dup2(o->stdout_fd, STDOUT_FILENO);
    dup2(o->log_fd, STDERR_FILENO);
}

/* Install the handlers of fatal signals, and once that of exit(). */
static void capture_watch(gp_capture *o)
{
    static bool at_exit;
    struct sigaction action = { .sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO };

    if (!at_exit)
        at_exit = atexit(on_exit_process) == 0;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < FATALS; i++)
        sigaction(fatal[i], &action, &o->before[i]);
}

/* Restore the actions of the signals, unless a task has changed them. */
static void capture_unwatch(gp_capture *o)
{
    struct sigaction now;

    for (int i = 0; i < FATALS; i++)
        if (sigaction(fatal[i], NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
            now.sa_sigaction == on_fatal)
            sigaction(fatal[i], &o->before[i], NULL);
}

gp_status gp_capture_open(gp_capture **out, gp_link *link, gp_error *err)
{
    gp_capture *o;
    gp_status status;
    int problem;

    if (atomic_load(&current) != NULL)
        return gp_fail(err, GP_ESTATE, "the output of tasks is already captured");
    o = gp_calloc(1, sizeof(*o));
    if (o == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the output of tasks");
    o->link = link;
    o->pid = getpid();
    o->pipe_fd = o->write_fd = o->stop_fd = o->log_fd = o->stdout_fd = -1;
    pthread_mutex_init(&o->lock, NULL);
    o->queue = gp_malloc(OUTPUT_QUEUE_BYTES);
    status = o->queue != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for the output of tasks");
    if (status == GP_OK)
        status = capture_redirect(o, err);
    if (status == GP_OK) {
        problem = gp_thread_start(&o->thread, "gp-output", 0, capture_run, o);
        o->running = problem == 0;
        if (problem != 0)
            status =
                gp_fail(err, GP_EIO, "cannot start a thread for the output of tasks: %s", strerror(problem));
    }
    if (status != GP_OK) {
        gp_capture_close(o);
        return status;
    }
    atomic_store(&current, o);
    capture_watch(o);
    *out = o;
    return GP_OK;
}

void gp_capture_close(gp_capture *capture)
{
    gp_capture *o = capture;

    if (o == NULL)
        return;
    if (o->running) {
        capture_unwatch(o);
        atomic_store(&current, NULL);
    }
    /* Restore before the thread ends: a thread of a task may wait in a write to the full pipe and
     * hold the lock of stdout. */
    if (o->pipe_fd >= 0)
        capture_restore(o);
    if (o->running) {
        eventfd_write(o->stop_fd, 1);
        pthread_join(o->thread, NULL);
    }
    if (o->pipe_fd >= 0) {
        capture_drain(o, true);
        gp_link_ring(o->link);
        close(o->pipe_fd);
        close(o->write_fd);
    }
    if (o->stop_fd >= 0)
        close(o->stop_fd);
    if (o->stdout_fd >= 0 && o->stdout_fd != o->log_fd)
        close(o->stdout_fd);
    pthread_mutex_destroy(&o->lock);
    gp_free(o->queue);
    gp_free(o);
}

/* ---- compute ---- */

void gp_capture_lock_ring(gp_capture *capture)
{
    pthread_mutex_lock(&capture->lock);
}

void gp_capture_unlock_ring(gp_capture *capture)
{
    pthread_mutex_unlock(&capture->lock);
}

void gp_capture_set_call(gp_capture *capture, uint64_t call)
{
    pthread_mutex_lock(&capture->lock);
    capture->tag = (queued_line){ .call = call };
    pthread_mutex_unlock(&capture->lock);
}

void gp_capture_set_iteration(gp_capture *capture, int64_t iteration)
{
    pthread_mutex_lock(&capture->lock);
    capture->tag.iteration = iteration;
    capture->tag.flags = GP_ANSWER_ITERATION;
    pthread_mutex_unlock(&capture->lock);
}

void gp_capture_flush(gp_capture *capture)
{
    fflush(stdout);
    pthread_mutex_lock(&capture->lock);
    capture_drain(capture, true);
    pthread_mutex_unlock(&capture->lock);
}
