#include "tests/bench/raw_zmq.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "tests/bench/burn.h"
#include "tests/bench/cores.h"

enum { PAGE = 4096 };

enum raw_kind { RAW_QUIT, RAW_TASKS, RAW_BULK };

/* Header for every message in both directions. Tasks add one word each (argument, then result);
 * bulk adds the bytes. */
typedef struct raw_head {
    uint32_t kind, count;
    uint64_t turns;
} raw_head;

struct raw_pool {
    int workers;
    pid_t pids[RAW_WORKERS_MAX];
    void *context, *router;
    char path[64]; /* socket path */

    /* payload for raw_bulk; allocated once, so that all pages exist before timing */
    unsigned char *bulk;
    size_t bulk_bytes;
};

static void check(const char *what, int result)
{
    if (result >= 0)
        return;
    fprintf(stderr, "raw_zmq: %s: %s\n", what, zmq_strerror(errno));
    exit(1);
}

/* ---- worker ---- */

static void worker_answer(zmq_msg_t *message)
{
    raw_head *head = zmq_msg_data(message);
    uint64_t *words = (uint64_t *)(head + 1);

    if (head->kind == RAW_TASKS) {
        for (uint32_t i = 0; i < head->count; i++)
            words[i] += head->turns == 0 ? 1 : bench_burn(head->turns);
    } else {
        size_t bytes = zmq_msg_size(message);

        for (size_t at = sizeof(*head); at + sizeof(uint64_t) <= bytes; at += PAGE)
            ++*(uint64_t *)((unsigned char *)head + at);
    }
}

static void worker_main(const char *endpoint, int index, int core)
{
    char identity = (char)('A' + index);
    int unlimited = 0;
    zmq_msg_t message;

    if (core >= 0)
        cores_pin(core);
    void *context = zmq_ctx_new(), *dealer = zmq_socket(context, ZMQ_DEALER);

    zmq_setsockopt(dealer, ZMQ_IDENTITY, &identity, 1);
    zmq_setsockopt(dealer, ZMQ_SNDHWM, &unlimited, sizeof(unlimited));
    zmq_setsockopt(dealer, ZMQ_RCVHWM, &unlimited, sizeof(unlimited));
    check("connect", zmq_connect(dealer, endpoint));
    check("hello", zmq_send(dealer, "", 0, 0));
    for (;;) {
        zmq_msg_init(&message);
        check("receive", zmq_msg_recv(&message, dealer, 0));
        if (((raw_head *)zmq_msg_data(&message))->kind == RAW_QUIT)
            break;
        worker_answer(&message);
        check("answer", zmq_msg_send(&message, dealer, 0));
    }
    zmq_msg_close(&message);
    zmq_close(dealer);
    zmq_ctx_term(context);
    _exit(0);
}

/* ---- client ---- */

/* Receive the next answer. Return the worker; -1: none yet (ZMQ_DONTWAIT only). The caller owns the
 * message. */
static int client_receive(raw_pool *pool, zmq_msg_t *message, int flags)
{
    char identity;

    if (zmq_recv(pool->router, &identity, 1, flags) < 0) {
        if (errno != EAGAIN)
            check("receive", -1);
        return -1;
    }
    zmq_msg_init(message);
    check("receive", zmq_msg_recv(message, pool->router, 0));
    return identity - 'A';
}

static void client_send(raw_pool *pool, int worker, zmq_msg_t *message)
{
    char identity = (char)('A' + worker);

    check("send", zmq_send(pool->router, &identity, 1, ZMQ_SNDMORE));
    check("send", zmq_msg_send(message, pool->router, 0));
}

static void client_send_tasks(raw_pool *pool, int worker, uint64_t first, uint32_t count, uint64_t turns)
{
    zmq_msg_t message;

    zmq_msg_init_size(&message, sizeof(raw_head) + count * sizeof(uint64_t));
    raw_head *head = zmq_msg_data(&message);
    uint64_t *words = (uint64_t *)(head + 1);

    *head = (raw_head){ .kind = RAW_TASKS, .count = count, .turns = turns };
    for (uint32_t i = 0; i < count; i++)
        words[i] = first + i;
    client_send(pool, worker, &message);
}

raw_pool *raw_open(int workers, const int *cores)
{
    raw_pool *pool = calloc(1, sizeof(*pool));
    static int opened;
    int unlimited = 0;
    char endpoint[80];
    zmq_msg_t hello;

    if (pool == NULL || workers < 1 || workers > RAW_WORKERS_MAX)
        check("open", -1);
    pool->workers = workers;
    snprintf(pool->path, sizeof(pool->path), "/tmp/gp-raw-%d-%d", (int)getpid(), ++opened);
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", pool->path);
    for (int i = 0; i < workers; i++) {
        pool->pids[i] = fork();
        check("fork", pool->pids[i]);
        if (pool->pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            worker_main(endpoint, i, cores[i]);
        }
    }
    pool->context = zmq_ctx_new();
    pool->router = zmq_socket(pool->context, ZMQ_ROUTER);
    zmq_setsockopt(pool->router, ZMQ_SNDHWM, &unlimited, sizeof(unlimited));
    zmq_setsockopt(pool->router, ZMQ_RCVHWM, &unlimited, sizeof(unlimited));
    check("bind", zmq_bind(pool->router, endpoint));
    for (int i = 0; i < workers; i++) {
        client_receive(pool, &hello, 0);
        zmq_msg_close(&hello);
    }
    return pool;
}

void raw_close(raw_pool *pool)
{
    for (int i = 0; i < pool->workers; i++) {
        zmq_msg_t quit;

        zmq_msg_init_size(&quit, sizeof(raw_head));
        *(raw_head *)zmq_msg_data(&quit) = (raw_head){ .kind = RAW_QUIT };
        client_send(pool, i, &quit);
    }
    for (int i = 0; i < pool->workers; i++)
        waitpid(pool->pids[i], NULL, 0);
    zmq_close(pool->router);
    zmq_ctx_term(pool->context);
    unlink(pool->path);
    free(pool->bulk);
    free(pool);
}

void raw_round_trips(raw_pool *pool, int64_t *ns, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t began = gp_now_ns();
        zmq_msg_t answer;

        client_send_tasks(pool, 0, (uint64_t)i, 1, 0);
        client_receive(pool, &answer, 0);
        zmq_msg_close(&answer);
        ns[i] = gp_now_ns() - began;
    }
}

void raw_spmd(raw_pool *pool, int64_t *ns, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t began = gp_now_ns();
        zmq_msg_t answer;

        for (int worker = 0; worker < pool->workers; worker++)
            client_send_tasks(pool, worker, (uint64_t)i, 1, 0);
        for (int worker = 0; worker < pool->workers; worker++) {
            client_receive(pool, &answer, 0);
            zmq_msg_close(&answer);
        }
        ns[i] = gp_now_ns() - began;
    }
}

double raw_tasks(raw_pool *pool, uint64_t count, unsigned batch, unsigned window, uint64_t turns)
{
    unsigned waiting[RAW_WORKERS_MAX] = { 0 };
    uint64_t sent = 0, done = 0, results = 0;
    int64_t began = gp_now_ns();

    while (done < count) {
        zmq_msg_t answer;
        int from;

        /* Send half a large window at a time: one wakeup then carries many messages. */
        for (int worker = 0; worker < pool->workers; worker++) {
            if (waiting[worker] > window / 2)
                continue;
            for (; waiting[worker] < window && sent < count; waiting[worker]++) {
                uint32_t now = count - sent < batch ? (uint32_t)(count - sent) : batch;

                client_send_tasks(pool, worker, sent, now, turns);
                sent += now;
            }
        }
        from = client_receive(pool, &answer, 0);
        do {
            raw_head *head = zmq_msg_data(&answer);

            waiting[from]--;
            done += head->count;
            for (uint32_t i = 0; i < head->count; i++)
                results += ((uint64_t *)(head + 1))[i];
            zmq_msg_close(&answer);
            from = client_receive(pool, &answer, ZMQ_DONTWAIT);
        } while (from >= 0);
    }
    double seconds = (double)(gp_now_ns() - began) * 1e-9;

    if (turns == 0 && results != count * (count + 1) / 2) {
        fprintf(stderr, "raw_zmq: wrong results\n");
        exit(1);
    }
    return seconds;
}

static void bulk_keep(void *data, void *hint)
{
    (void)data;
    (void)hint;
}

double raw_bulk(raw_pool *pool, size_t bytes)
{
    uint64_t seen = 0;

    if (pool->bulk_bytes != bytes) {
        free(pool->bulk);
        pool->bulk = malloc(sizeof(raw_head) + bytes);
        if (pool->bulk == NULL)
            check("memory", -1);
        memset(pool->bulk, 1, sizeof(raw_head) + bytes);
        *(raw_head *)(void *)pool->bulk = (raw_head){ .kind = RAW_BULK };
        pool->bulk_bytes = bytes;
    }
    int64_t began = gp_now_ns();

    for (int worker = 0; worker < pool->workers; worker++) {
        zmq_msg_t message;

        zmq_msg_init_data(&message, pool->bulk, sizeof(raw_head) + bytes, bulk_keep, NULL);
        client_send(pool, worker, &message);
    }
    for (int worker = 0; worker < pool->workers; worker++) {
        zmq_msg_t answer;

        client_receive(pool, &answer, 0);
        for (size_t at = sizeof(raw_head); at + sizeof(uint64_t) <= zmq_msg_size(&answer); at += PAGE)
            seen += *(uint64_t *)(void *)((unsigned char *)zmq_msg_data(&answer) + at) & 0xff;
        zmq_msg_close(&answer);
    }
    double seconds = (double)(gp_now_ns() - began) * 1e-9;
    uint64_t pages = (bytes + PAGE - sizeof(uint64_t)) / PAGE;

    if (seen != pages * 2 * (uint64_t)pool->workers) {
        fprintf(stderr, "raw_zmq: a payload came back without its stamps\n");
        exit(1);
    }
    return seconds;
}

/* ---- the client in another process: receives a byte count, returns seconds ---- */

struct raw_kept {
    pid_t pid;
    int orders, reports;
};

static void kept_main(int workers, const int *cores, int orders, int reports)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    raw_pool *pool = raw_open(workers, cores);

    for (size_t bytes; read(orders, &bytes, sizeof(bytes)) == sizeof(bytes);) {
        double seconds = raw_bulk(pool, bytes);

        check("report", (int)write(reports, &seconds, sizeof(seconds)));
    }
    raw_close(pool);
    _exit(0);
}

raw_kept *raw_kept_open(int workers, const int *cores)
{
    raw_kept *kept = calloc(1, sizeof(*kept));
    int orders[2], reports[2];

    if (kept == NULL)
        check("memory", -1);
    check("pipe", pipe(orders));
    check("pipe", pipe(reports));
    kept->pid = fork();
    check("fork", kept->pid);
    if (kept->pid == 0) {
        close(orders[1]);
        close(reports[0]);
        kept_main(workers, cores, orders[0], reports[1]);
    }
    close(orders[0]);
    close(reports[1]);
    kept->orders = orders[1];
    kept->reports = reports[0];
    return kept;
}

double raw_kept_bulk(raw_kept *kept, size_t bytes)
{
    double seconds;

    check("order", (int)write(kept->orders, &bytes, sizeof(bytes)));
    check("report", read(kept->reports, &seconds, sizeof(seconds)) == sizeof(seconds) ? 0 : -1);
    return seconds;
}

void raw_kept_close(raw_kept *kept)
{
    close(kept->orders);
    waitpid(kept->pid, NULL, 0);
    close(kept->reports);
    free(kept);
}
