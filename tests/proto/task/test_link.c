/* Shared-memory link: no record is lost or delivered twice, no side sleeps forever, and a corrupt
 * segment does no harm. */
#include "proto/task/link.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/gp_test.h"

/* Both ends of a link, in this process. */
typedef struct pair {
    gp_link *client, *worker;
    int segment, wakeup_fd;
} pair;

static bool pair_open(pair *p)
{
    gp_error err;

    p->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (gp_link_new(&p->client, &p->segment, &err) != GP_OK ||
        gp_link_map(&p->worker, p->segment, p->wakeup_fd, false, &err) != GP_OK) {
        GP_TEST_FAIL("cannot open a link: %s", err.message);
        return false;
    }
    return true;
}

static void pair_close(pair *p)
{
    gp_link_free(p->client);
    gp_link_free(p->worker);
    close(p->segment);
    close(p->wakeup_fd);
}

/* Write a call with a payload of `bytes`. Return false if the ring is full. */
static bool send_call(gp_link *link, uint64_t id, size_t bytes)
{
    gp_call *call = gp_link_reserve(link, bytes);

    if (call == NULL)
        return false;
    call->kind = 10;
    call->id = id;
    memset(call->payload, (int)(id & 0xff), bytes);
    gp_link_commit(link);
    return true;
}

/* Return the next call; NULL: no call is pending. */
static const gp_call *next_call(gp_link *link)
{
    const void *record = NULL;
    gp_error err;

    return gp_link_next(link, &record, &err) == GP_OK ? record : NULL;
}

/* ---- one thread ---- */

TEST(record_is_visible_after_commit_only)
{
    pair p;
    const gp_call *got;

    REQUIRE(pair_open(&p));
    gp_call *call = gp_link_reserve(p.client, 5);

    REQUIRE(call != NULL);
    CHECK_INT(0, call->id); /* the header is zeroed */
    CHECK_INT(5, call->payload_bytes);
    call->id = 7;
    memcpy(call->payload, "hello", 5);
    CHECK(next_call(p.worker) == NULL);
    gp_link_commit(p.client);
    got = next_call(p.worker);
    REQUIRE(got != NULL);
    CHECK_INT(7, got->id);
    CHECK(memcmp(got->payload, "hello", 5) == 0);
    CHECK(!gp_link_idle(p.client));
    gp_link_drop(p.worker);
    CHECK(gp_link_idle(p.client));
    CHECK(next_call(p.worker) == NULL);
    pair_close(&p);
}

TEST(full_ring_refuses_records_until_one_is_dropped)
{
    pair p;
    uint64_t sent = 0, got = 0;

    REQUIRE(pair_open(&p));
    CHECK(gp_link_reserve(p.client, GP_LINK_INLINE_MAX + 1) == NULL);
    for (int round = 0; round < 200; round++) {
        const gp_call *call;

        while (send_call(p.client, sent, (size_t)(sent * 7919 % (GP_LINK_INLINE_MAX + 1))))
            sent++;
        CHECK(sent - got >= GP_LINK_RING_BYTES / (GP_LINK_INLINE_MAX + 64) / 2);
        for (int i = 0; i < 1 + round % 40 && (call = next_call(p.worker)) != NULL; i++) {
            size_t bytes = (size_t)(got * 7919 % (GP_LINK_INLINE_MAX + 1));

            REQUIRE(call->id == got && call->payload_bytes == bytes);
            CHECK(bytes == 0 ||
                  (call->payload[0] == (got & 0xff) && call->payload[bytes - 1] == (got & 0xff)));
            gp_link_drop(p.worker);
            got++;
        }
    }
    CHECK(sent > 1000);
    pair_close(&p);
}

TEST(call_is_either_taken_or_revoked)
{
    pair p;
    uint64_t at[3];

    REQUIRE(pair_open(&p));
    for (uint64_t i = 0; i < 3; i++) {
        CHECK(send_call(p.client, i + 1, 0));
        at[i] = gp_link_position(p.client);
    }
    CHECK(gp_call_take(next_call(p.worker)));
    CHECK(!gp_link_revoke(p.client, at[0])); /* already taken */
    CHECK(gp_link_revoke(p.client, at[1]));
    CHECK(!gp_link_revoke(p.client, at[1])); /* already revoked */
    gp_link_drop(p.worker);
    CHECK(!gp_call_take(next_call(p.worker)));
    gp_link_drop(p.worker);
    CHECK(gp_call_take(next_call(p.worker)));
    gp_link_drop(p.worker);
    for (int i = 0; i < 3; i++)
        CHECK(!gp_link_revoke(p.client, at[i])); /* already dropped */
    pair_close(&p);
}

enum { RACES = 100000 };

/* Take all calls that were not revoked, and set taken[id] for each. Runs in a second process. */
static void race_worker(gp_link *link, unsigned char *taken)
{
    for (uint64_t got = 0; got < RACES;) {
        const gp_call *call = next_call(link);

        if (call == NULL) {
            sched_yield();
            continue;
        }
        if (gp_call_take(call))
            taken[call->id] = 1;
        gp_link_drop(link);
        got++;
    }
}

TEST(racing_take_and_revoke_have_exactly_one_winner)
{
    unsigned char *taken = mmap(NULL, RACES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static unsigned char revoked[RACES];
    uint64_t both = 0, neither = 0, of_each[2] = { 0 };
    int status = -1;
    pair p;
    pid_t pid;

    REQUIRE(pair_open(&p) && taken != MAP_FAILED);
    pid = fork();
    if (pid == 0) {
        race_worker(p.worker, taken);
        _exit(0);
    }
    for (uint64_t id = 0; id < RACES;) {
        if (!send_call(p.client, id, id % 300)) {
            sched_yield();
            continue;
        }
        if (id % 2 == 0)
            revoked[id] = gp_link_revoke(p.client, gp_link_position(p.client));
        id++;
    }
    waitpid(pid, &status, 0);
    CHECK_INT(0, status);
    for (uint64_t id = 0; id < RACES; id++) {
        both += taken[id] && revoked[id];
        neither += !taken[id] && !revoked[id];
        of_each[0] += taken[id];
        of_each[1] += revoked[id];
    }
    CHECK_INT(0, both);
    CHECK_INT(0, neither);
    CHECK(of_each[0] >= RACES / 2 && of_each[1] > 0);
    munmap(taken, RACES);
    pair_close(&p);
}

TEST(cancel_applies_to_the_running_call_only)
{
    pair p;

    REQUIRE(pair_open(&p));
    CHECK_INT(0, gp_link_running(p.client));
    CHECK(!gp_link_canceled(p.worker));
    gp_link_set_running(p.worker, 9);
    CHECK_INT(9, gp_link_running(p.client));
    gp_link_cancel(p.client, 8); /* a call that has ended meanwhile */
    CHECK(!gp_link_canceled(p.worker));
    gp_link_cancel(p.client, 9);
    CHECK(gp_link_canceled(p.worker));
    gp_link_set_running(p.worker, 0);
    CHECK(!gp_link_canceled(p.worker));
    pair_close(&p);
}

TEST(foreign_segments_are_refused)
{
    gp_link *link = NULL;
    gp_error err;
    int plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHECK_STATUS(GP_EPROTO, gp_link_map(&link, plain, -1, false, &err));
    CHECK_INT(0, ftruncate(plain, 4096));
    CHECK_INT(0, fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    CHECK_STATUS(GP_EVERSION, gp_link_map(&link, plain, -1, false, &err));
    CHECK(link == NULL);
    close(plain);
}

/* ---- corrupt segments ---- */

TEST(corrupt_segments_never_crash_the_peer)
{
    pair p;
    uint64_t state = 88172645463325252u;
    struct stat facts;

    for (int round = 0; round < 300; round++) {
        REQUIRE(pair_open(&p));
        REQUIRE(fstat(p.segment, &facts) == 0);
        unsigned char *memory =
            mmap(NULL, (size_t)facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, p.segment, 0);

        REQUIRE(memory != MAP_FAILED);
        for (uint64_t i = 0; i < 20; i++)
            send_call(p.client, i + 1, (size_t)(i * 97));
        for (int i = 0; i < 6; i++) { /* corrupt the header and the first records */
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            size_t at = i < 3 ? state % 1024 & ~(size_t)7 : 4096 + state % 8192;

            memcpy(memory + at, &state, sizeof(state));
        }
        for (int i = 0; i < 40; i++) {
            const void *record;
            gp_error err;
            gp_status status = gp_link_next(p.worker, &record, &err);

            if (status != GP_OK)
                break;
            const gp_call *call = record;
            volatile unsigned char sum = 0;

            if (call->blob == 0)
                for (uint64_t n = 0; n < call->payload_bytes; n++)
                    sum = (unsigned char)(sum + call->payload[n]);
            gp_call_take(call);
            gp_link_drop(p.worker);
        }
        gp_link_revoke(p.client, gp_link_position(p.client));
        gp_link_reserve(p.client, 100);
        munmap(memory, (size_t)facts.st_size);
        pair_close(&p);
    }
}

/* ---- two threads ---- */

enum { EXCHANGED = 30000 };

/* State of the thread that acts as the worker. */
typedef struct server {
    gp_link *link;
    uint64_t taken, revoked;
} server;

/* Worker thread: answer each call with the id and payload length, and a payload whose length
 * depends on the id. Call id 0 ends the thread. */
static void *serve(void *context)
{
    server *s = context;

    for (;;) {
        const gp_call *call = next_call(s->link);
        gp_answer *answer;

        if (call == NULL) {
            gp_link_ring(s->link);
            gp_link_wait(s->link, -1);
            continue;
        }
        if (!gp_call_take(call)) {
            s->revoked++;
            gp_link_drop(s->link);
            continue;
        }
        if (call->id == 0)
            return NULL;
        while ((answer = gp_link_reserve(s->link, (size_t)(call->id % 5000))) == NULL) {
            gp_link_ring(s->link);
            sched_yield();
        }
        answer->id = call->id;
        answer->value = call->payload_bytes;
        gp_link_commit(s->link);
        if (call->id % 3 == 0)
            gp_link_ring(s->link);
        s->taken++;
        gp_link_drop(s->link);
    }
}

/* Read all pending answers, or with `wait` sleep until one arrives. Return false if an answer is
 * wrong or out of order, or if none arrives within a minute. */
static bool take_answers(pair *p, uint64_t *got, uint64_t sent, bool wait)
{
    const void *record;
    gp_error err;
    uint64_t drained;

    while (gp_link_next(p->client, &record, &err) == GP_OK) {
        const gp_answer *answer = record;

        if (answer->id <= *got || answer->id > sent || answer->payload_bytes != answer->id % 5000 ||
            answer->value != answer->id % 700)
            return false;
        *got = answer->id;
        gp_link_drop(p->client);
        wait = false;
    }
    if (wait && gp_link_asleep(p->client, false)) {
        struct pollfd wakeup_fd = { .fd = p->wakeup_fd, .events = POLLIN };

        if (poll(&wakeup_fd, 1, 60000) == 0)
            return false;
    }
    gp_link_awake(p->client);
    if (read(p->wakeup_fd, &drained, sizeof(drained)) < 0)
        drained = 0;
    return true;
}

TEST(threads_exchange_calls_without_loss_or_lost_wakeups)
{
    pair p;
    server s = { 0 };
    pthread_t thread;
    uint64_t sent = 0, got = 0, revoked = 0, last = 0;
    bool well = true;

    REQUIRE(pair_open(&p));
    s.link = p.worker;
    pthread_create(&thread, NULL, serve, &s);
    while (well && sent < EXCHANGED) {
        if (send_call(p.client, sent + 1, (size_t)((sent + 1) % 700))) {
            sent++;
            if (sent % 7 == 0) {
                gp_link_ring(p.client);
            } else if (sent % 101 == 0 && gp_link_revoke(p.client, gp_link_position(p.client))) {
                revoked++;
                continue;
            }
            last = sent;
            well = take_answers(&p, &got, sent, false);
        } else {
            gp_link_ring(p.client);
            well = take_answers(&p, &got, sent, true);
        }
    }
    gp_link_ring(p.client);
    while (well && got < last)
        well = take_answers(&p, &got, sent, true);
    CHECK(well);
    CHECK_INT(last, got);
    while (!send_call(p.client, 0, 0))
        sched_yield();
    gp_link_ring(p.client);
    pthread_join(thread, NULL);
    CHECK_INT(revoked, s.revoked);
    CHECK_INT(EXCHANGED - revoked, s.taken);
    pair_close(&p);
}

static void *wake_later(void *context)
{
    gp_sleep_ms(20);
    gp_link_wake(context);
    return NULL;
}

TEST(wait_ends_by_wakeup_or_timeout)
{
    pair p;
    pthread_t thread;
    int64_t begun = gp_now_ms();

    REQUIRE(pair_open(&p));
    gp_link_wait(p.worker, 10000000);
    CHECK(gp_now_ms() - begun >= 9);
    pthread_create(&thread, NULL, wake_later, p.worker);
    gp_link_wait(p.worker, -1); /* would block forever without the wake-up */
    pthread_join(thread, NULL);
    gp_link_wake(p.worker); /* remembered until the next wait */
    gp_link_wait(p.worker, -1);
    pair_close(&p);
}
