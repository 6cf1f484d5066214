/* test_hosts.c: a pool on one host, clients on another, and a faulty network between them.
 *
 * Two network namespaces are connected by a cable with a proxy (proxy.h) that delays, throttles,
 * cuts, resets, half-closes, corrupts, drops, reorders and refuses; then the cable itself fails.
 * Jobs are tests/fake/job.c. Jobs, clients and the test write one history, which is checked like
 * that of a simulated run (tests/sim/history.h): every acknowledged job is present and ends exactly
 * once. Meanwhile a training runs on the pool's host, which fails if anything disturbs it.
 *
 * GRADPOOL_HOSTS_SECONDS=N: N seconds of random faults from GRADPOOL_HOSTS_SEED; used by
 * tests/fault/run_hosts. GRADPOOL_HOSTS_ONLY=corrupt (or another one): only that kind of fault. */
#include "tests/fault/netns.h"
#include "tests/fault/proxy.h"
#include "tests/service/commands.h"
#include "tests/sim/history.h"

enum {
    CLIENTS = 3,       /* through the proxy */
    ALL = CLIENTS + 1, /* and one directly on the cable */
    SUBMITS_MAX = 200000,

    /* Limits for a hang; docs/security.md lists the usual times. */
    CALL_MS = 400000,
    BACK_MS = 300000,
    CASES = 5,
    CASE_MS = 400000,
    PORT = 5555,
};

static char server_dirs[2][200];
static proxy between;

/* Shared memory of test and clients. */
static struct board {
    int stop;
    uint64_t acknowledged[ALL], calls[ALL], errors[ALL];
    uint64_t slowest_ms[ALL];
    int64_t case_ms[CASES];
    int wrong; /* errors without a cause, or late ones */
    char last_error[ALL][GP_ERROR_MESSAGE_MAX + 40];
} * board;

/* ---- two hosts ---- */

static void on_host(void)
{
    netns_enter(0);
    setenv("GRADPOOL_RUNTIME_DIR", server_dirs[0], 1);
    setenv("GRADPOOL_STATE_DIR", server_dirs[1], 1);
}

static void elsewhere(void)
{
    netns_enter(1);
    setenv("GRADPOOL_RUNTIME_DIR", in_root("far"), 1);
    setenv("GRADPOOL_STATE_DIR", in_root("far-state"), 1);
}

static const char *client_name(int i)
{
    static const char *const names[ALL] = { "alice", "bob", "carol", "dora" };

    return names[i];
}

/* Set up both hosts. Return false if skipped or failed. */
static bool hosts_begin(void)
{
    char key[60];

    commands_begin();
    snprintf(server_dirs[0], sizeof(server_dirs[0]), "%s", getenv("GRADPOOL_RUNTIME_DIR"));
    snprintf(server_dirs[1], sizeof(server_dirs[1]), "%s", getenv("GRADPOOL_STATE_DIR"));
    setenv("HOME", pools_root, 1);
    setenv("GRADPOOL_CLIENT", in_build("tests/fake_job"), 1);
    on_host();
    for (int i = 0; i < ALL; i++) {
        snprintf(key, sizeof(key), "%s.key", client_name(i));
        RUN_CODE(0, "key", "new", in_root(key), "--quiet");
        RUN_CODE(0, "key", "add", client_name(i), in_root(key));
    }
    RUN_CODE(0, "up", "--workers", "4", "--listen", "tcp://" HOST_A ":5555");
    RUN_CODE(0, "key", "show");
    write_file("box.pub", out);
    chmod(in_root("box.pub"), 0644);
    elsewhere();
    return gp_test_failures == 0;
}

static void hosts_end(void)
{
    on_host();
    if (gp_test_failures != 0 &&
        shell("cd state/*/default/log && grep -v '^time=' scheduler.log; "
              "grep -vE 'event=(job|remote-request)' scheduler.log | tail -n 40") != 0)
        printf("     no log\n");
    pools_end();
    elsewhere();
}

/* ---- clients ---- */

static void note(history_entry entry)
{
    if (!history_append(in_root("history"), entry)) {
        board->wrong++;
        _exit(2);
    }
}

/* Check the result of a call: in time, and a failure has an error message with a cause. */
static void judge(int i, const char *call, int64_t began_ms, gp_status status, const gp_error *why)
{
    uint64_t took_ms = (uint64_t)(gp_now_ms() - began_ms);

    board->calls[i]++;
    if (took_ms > board->slowest_ms[i])
        board->slowest_ms[i] = took_ms;
    if (took_ms > CALL_MS) {
        printf("     %s of %s came back after %d ms\n", call, client_name(i), (int)took_ms);
        board->wrong++;
    }
    if (status == GP_OK)
        return;
    board->errors[i]++;
    snprintf(board->last_error[i], sizeof(board->last_error[i]), "%s: %s", gp_status_name(status),
             why->message);

    /* Accept the errors that a network can cause at each call. Corrupted data must never be decoded
     * (GP_EPROTO). A client cannot distinguish another pool from three broken handshakes of a new
     * connection, or broken handshakes during all reconnect attempts. */
    bool broken = status == GP_EPERM &&
                  (strcmp(call, "open") == 0 || strncmp(why->message, "lost the connection to ", 23) == 0) &&
                  strstr(why->message, "the network closes connections") != NULL;

    if ((status != GP_EPEER && status != GP_ENOPOOL && status != GP_ETIMEDOUT && status != GP_EBUSY &&
         !broken) ||
        strlen(why->message) < 20) {
        printf("     %s of %s: %s\n", call, client_name(i), board->last_error[i]);
        board->wrong++;
    }
}

/* Submit jobs one at a time, and wait for some of them, until stopped. */
static void client_main(int i, int port)
{
    char endpoint[40], key[200], server_key[200], history_path[200];
    const char *const words[] = { "train", "record", history_path, "3", NULL };
    uint64_t session = (uint64_t)i + 1;
    gp_job_request request = { .words = words, .key = { (uint8_t)session } };
    gp_pool_options options = { .pool = endpoint, .key_file = key, .server_key_file = server_key };
    gp_pool *pool = NULL;
    gp_error why;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(endpoint, sizeof(endpoint), "tcp://%s:%d", i < CLIENTS ? "127.0.0.1" : HOST_A, port);
    snprintf(key, sizeof(key), "%s/%s.key", pools_root, client_name(i));
    snprintf(server_key, sizeof(server_key), "%s/box.pub", pools_root);
    snprintf(history_path, sizeof(history_path), "%s/history", pools_root);
    for (uint64_t seq = 1; seq < SUBMITS_MAX && !__atomic_load_n(&board->stop, __ATOMIC_SEQ_CST);) {
        int64_t began = gp_now_ms();
        gp_job_info info;
        uint64_t job;
        gp_status status = GP_OK;

        if (pool == NULL) {
            status = gp_pool_open(&pool, &options, &why);
            judge(i, "open", began, status, &why);
            if (status != GP_OK) {
                gp_sleep_ms(50);
                continue;
            }
        }
        request.seq = seq;
        note((history_entry){ .kind = HISTORY_SUBMIT, .session = session, .seq = seq });
        began = gp_now_ms();
        status = gp_job_submit(&job, pool, &request, &why);
        judge(i, "submit", began, status, &why);
        if (status == GP_OK) {
            note((history_entry){
                .kind = HISTORY_ACCEPT, .session = session, .seq = seq, .id = job, .attempt = 3 });
            __atomic_store_n(&board->acknowledged[i], seq, __ATOMIC_SEQ_CST);
            seq++;
        }
        if (status == GP_OK && seq % 4 == 0) {
            began = gp_now_ms();
            status = gp_job_wait(&info, pool, &job, 1, false, POOLS_TIMEOUT_MS, NULL, &why);
            judge(i, "wait", began, status, &why);
            if (status == GP_OK)
                note((history_entry){ .kind = HISTORY_END, .id = job, .outcome = (int32_t)info.state });
        }

        /* After a failure: reconnect and repeat the same submit, as a program would. Without one,
         * connections are closed and opened now and then. */
        if (status != GP_OK || seq % 16 == 0) {
            gp_pool_close(pool);
            pool = NULL;
        }
        gp_sleep_ms(2);
    }
    gp_pool_close(pool);
    _exit(0);
}

static pid_t client_start(int i, int port)
{
    fflush(stdout);
    pid_t child = fork();

    if (child == 0)
        client_main(i, port);
    return child;
}

static uint64_t acknowledged(int i)
{
    return __atomic_load_n(&board->acknowledged[i], __ATOMIC_SEQ_CST);
}

/* Wait until each client makes progress: the network works again. */
static void await_progress(int first, int count, const char *after)
{
    uint64_t before[ALL];
    int64_t began = gp_now_ms();

    for (int i = first; i < first + count; i++)
        before[i] = acknowledged(i);
    for (int i = first; i < first + count; i++) {
        while (acknowledged(i) < before[i] + 2 && gp_now_ms() - began < BACK_MS)
            gp_sleep_ms(2);
        if (acknowledged(i) < before[i] + 2)
            GP_TEST_FAIL("after %s, %s gets no reply for %d ms (last error: %s)", after, client_name(i),
                         (int)(gp_now_ms() - began), board->last_error[i]);
    }
    printf("     %-22s connected again after %4d ms\n", after, (int)(gp_now_ms() - began));
}

/* ---- the concurrent training ---- */

static int steps_reported(void)
{
    return lines_of("metrics.jsonl");
}

static pid_t training_start(void)
{
    int sink = open(in_root("training"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const char *words[] = { "train",
                            "--network",
                            "lenet",
                            "--data",
                            "digits:600",
                            "--max-epochs",
                            "100000",
                            "--mini-batch-size",
                            "50",
                            "--workers",
                            "2",
                            "--max-restarts",
                            "0",
                            "--metrics",
                            "metrics.jsonl",
                            "--validation-frequency",
                            "1000000",
                            "--verbose-frequency",
                            "1000000",
                            NULL };

    on_host();
    pid_t child = start(-1, sink, words);

    close(sink);
    elsewhere();
    AWAIT(steps_reported() >= 3, 5);
    CHECK(steps_reported() >= 3);
    return child;
}

/* Check that the training was not disturbed: with --max-restarts 0 it ends if it loses a worker,
 * the lease or the group. */
static void training_end(pid_t training)
{
    int steps = steps_reported();

    AWAIT(steps_reported() > steps, 5);
    CHECK(steps_reported() > steps);
    kill(training, SIGINT);
    CHECK_INT(130, finish(training));
    printf("     %d steps of the training on the pool's host meanwhile\n", steps_reported());
}

/* ---- final checks ---- */

static bool note_end(void *context, const gp_job_info *job)
{
    uint64_t *ended = context;

    if (gp_job_state_ended(job->state)) {
        note((history_entry){ .kind = HISTORY_END, .id = job->id, .outcome = (int32_t)job->state });
        (*ended)++;
    }
    return true;
}

static bool count_open(void *context, const gp_job_info *job)
{
    (void)job;
    ++*(uint64_t *)context;
    return true;
}

/* Check that all acknowledged jobs have ended successfully, exactly once. */
static void check_history(void)
{
    static const history_rules rules = { .gapless = true, .good = GP_JOB_DONE };
    history *h = history_new(&rules);
    gp_pool *pool = NULL;
    gp_error why;
    uint64_t ended = 0, all = 0, open_jobs = 0;

    for (int i = 0; i < ALL; i++)
        all += acknowledged(i);
    on_host();
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &why), why);
    for (int64_t until = gp_now_ms() + POOLS_TIMEOUT_MS; gp_now_ms() < until; gp_sleep_ms(20)) {
        gp_jobs_reply *page;
        bool over;

        REQUIRE_OK(pool_jobs_page(pool, 0, 0, 1, &page, &why), why);
        over = page->queued + page->running == 0;
        CHECK_INT(0, page->failed + page->lost + page->canceled);
        CHECK(page->done <= all + ALL); /* up to one unread reply per client */
        gp_free(page);
        open_jobs = 0; /* an end is reported once it is on disk */
        if (over && gp_job_list(pool, false, count_open, &open_jobs, &why) == GP_OK && open_jobs == 0)
            break;
    }
    CHECK_INT(0, open_jobs);
    CHECK_STATUS(GP_OK, gp_job_list(pool, true, note_end, &ended, &why));
    CHECK(ended >= all);
    gp_pool_close(pool);
    elsewhere();
    if (!history_read(h, in_root("history")) || !history_close(h))
        GP_TEST_FAIL("%s: %s", history_check(h), history_failure(h));
    history_counts counts = history_get_counts(h);

    printf("     %d submits (%d acknowledged); %d jobs started, %d succeeded\n",
           (int)counts.of[HISTORY_SUBMIT], (int)counts.of[HISTORY_ACCEPT], (int)counts.of[HISTORY_START],
           (int)counts.of[HISTORY_FINISH]);
    CHECK_INT(0, counts.again);
    history_free(h);
}

/* Check that corrupted data ended the links, and that it was never taken for a message. */
static void check_nothing_was_believed(void)
{
    if (shell("grep -hE 'malformed message|event=message-(damaged|refused)' "
              "state/*/default/log/scheduler.log") == 0)
        GP_TEST_FAIL("changed bytes were read as messages");
}

/* ---- sequence of faults ---- */

typedef struct step {
    proxy_fault fault;
    uint32_t amount;
    int64_t ms;
} step;

static void cable(bool up)
{
    if (!netns_ip("link set cable %s", up ? "up" : "down"))
        GP_TEST_FAIL("cannot disable the cable");
}

static void address(bool there, int host)
{
    netns_enter(host);
    if (!netns_ip("addr %s %s/24 dev cable", there ? "add" : "del", host == 0 ? HOST_A : HOST_B))
        GP_TEST_FAIL("cannot change the address");
    netns_enter(1);
}

/* Return whether connections have been affected by the fault; some faults are visible only to
 * clients. */
static bool is_met(proxy_fault fault, const proxy_counts *before)
{
    proxy_counts now = proxy_get_counts(&between);

    if (fault == PROXY_CORRUPT)
        return now.bits_changed > before->bits_changed;
    if (fault == PROXY_CUT || fault == PROXY_RESET || fault == PROXY_HALF_CLOSE)
        return now.ended > before->ended;
    return true;
}

/* Apply a fault. timeout_ms extends it until a connection is affected, for busy machines. */
static void strike(const step *s, int64_t timeout_ms)
{
    proxy_counts before = proxy_get_counts(&between);

    proxy_set(&between, s->fault, s->amount);
    gp_sleep_ms(s->ms);
    for (int64_t until = gp_now_ms() + timeout_ms; !is_met(s->fault, &before) && gp_now_ms() < until;)
        gp_sleep_ms(2);
    proxy_set(&between, PROXY_PASS, 0);
    await_progress(0, CLIENTS, proxy_fault_names[s->fault]);
}

/* which: 0: the cable, 1 and 2: the address of A or B. */
static void strike_link(int which, int64_t ms)
{
    static const char *const names[] = { "a pulled cable", "no address of A", "no address of B" };

    if (which == 0)
        cable(false);
    else
        address(false, which - 1);
    gp_sleep_ms(ms);
    if (which == 0)
        cable(true);
    else
        address(true, which - 1);
    await_progress(0, ALL, names[which]);
}

static int schedulers_killed;

/* Kill the scheduler while remote clients cannot reach it; the local training starts the next one
 * at the same address. */
static void strike_scheduler(int which, int64_t ms)
{
    static const char *const names[] = { "a scheduler failure behind a pulled cable",
                                         "a scheduler failure behind a black hole",
                                         "a scheduler failure behind a refusal",
                                         "a scheduler failure behind corrupted data" };
    static const step breaks[] = {
        { PROXY_PASS, 0, 0 }, { PROXY_BLACK_HOLE, 0, 0 }, { PROXY_REFUSE, 0, 0 }, { PROXY_CORRUPT, 200, 0 }
    };

    on_host();
    pid_t scheduler = pid_of(0);

    elsewhere();
    if (scheduler <= 1) {
        GP_TEST_FAIL("no scheduler to kill");
        return;
    }
    if (which == 0)
        cable(false);
    else
        proxy_set(&between, breaks[which].fault, breaks[which].amount);
    gp_sleep_ms(ms / 2);
    kill(scheduler, SIGKILL);
    schedulers_killed++;
    gp_sleep_ms(ms / 2);
    if (which == 0)
        cable(true);
    else
        proxy_set(&between, PROXY_PASS, 0);
    await_progress(0, ALL, names[which]);
}

/* Apply each fault once, long enough to affect clients. */
static void each_once(void)
{
    static const step steps[] = {
        { PROXY_DELAY, 60, 300 },     { PROXY_THROTTLE, 6000, 300 },  { PROXY_CUT, 700, 300 },
        { PROXY_RESET, 700, 300 },    { PROXY_HALF_CLOSE, 700, 300 }, { PROXY_CORRUPT, 300, 300 },
        { PROXY_CORRUPT, 20, 300 },   { PROXY_REORDER, 150, 300 },    { PROXY_REFUSE, 0, 300 },
        { PROXY_BLACK_HOLE, 0, 200 },
    };

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && gp_test_failures == 0; i++)
        strike(&steps[i], BACK_MS);
    for (int which = 0; which < 3 && gp_test_failures == 0; which++)
        strike_link(which, 150);
    for (int which = 0; which < 4 && gp_test_failures == 0; which++)
        strike_scheduler(which, 300);
}

static void at_random(double seconds, uint64_t seed)
{
    int64_t until = gp_now_ms() + (int64_t)(seconds * 1e3);
    int faults = 0;

    srandom((unsigned)seed);
    for (; gp_now_ms() < until && gp_test_failures == 0 && board->wrong == 0; faults++) {
        static const uint32_t most[PROXY_FAULTS] = { 1, 400, 30000, 4000, 4000, 4000, 3000, 1, 400, 1 };
        const char *only = getenv("GRADPOOL_HOSTS_ONLY");

        /* 0: PASS; numbers beyond the faults: the link and the scheduler */
        int which = (int)(random() % (PROXY_FAULTS + 4));
        int64_t ms = 20 + random() % (random() % 8 == 0 ? 6000 : 600);

        for (int i = 1; only != NULL && i < PROXY_FAULTS; i++)
            which = strcmp(only, proxy_fault_names[i]) == 0 ? i : which;
        if (which >= PROXY_FAULTS + 2)
            strike_scheduler((int)(random() % 4), ms < 2000 ? ms : 2000);
        else if (which == 0 || which >= PROXY_FAULTS)
            strike_link((int)(random() % 3), ms);
        else
            strike(&(step){ (proxy_fault)which, 1 + (uint32_t)(random() % most[which]), ms }, 0);
    }
    printf("     %d faults in %d s, seed %d\n", faults, (int)seconds, (int)seed);
}

/* ---- error messages ---- */

/* Commands that cannot reach the pool, each through a separate proxy. They mostly wait, so they run
 * in parallel with the other faults. */
static const struct case_words {
    const char *what;
    proxy_fault fault;
    uint32_t amount;
    const char *cause; /* part of the error */
} cases[CASES] = {
    { "refused", PROXY_REFUSE, 0, "no process listens" },
    { "swallowed", PROXY_BLACK_HOLE, 0, "accepts connections but does not reply" },
    { "reset", PROXY_RESET, 30, "the network closes connections" },
    { "cut", PROXY_CUT, 30, "the network closes connections" },
    { "corrupted", PROXY_CORRUPT, 8, "the network closes connections" },
};

static proxy case_proxies[CASES];
static pid_t case_children[CASES];

/* Run a command and measure the time. */
static void case_main(int i)
{
    char address_text[40], errors[40];
    int64_t began = gp_now_ms();
    const char *words[] = {
        "status",           "--pool", address_text, "--key-file", in_root("alice.key"), "--server-key-file",
        in_root("box.pub"), NULL
    };

    snprintf(address_text, sizeof(address_text), "tcp://127.0.0.1:%d", case_proxies[i].port);
    snprintf(errors, sizeof(errors), "errors-%d", i);
    pid_t child = fork();

    if (child == 0) {
        int sink = command_file(errors);

        command_exec(pools_root, (const int[]){ STDIN_FILENO, sink, sink }, words);
    }
    int code = child_exit_code(child);

    board->case_ms[i] = gp_now_ms() - began;
    _exit(code);
}

static void cases_begin(void)
{
    for (int i = 0; i < CASES; i++) {
        REQUIRE(proxy_start(&case_proxies[i], HOST_A, PORT, 11 + (uint32_t)i));
        proxy_set(&case_proxies[i], cases[i].fault, cases[i].amount);
        fflush(stdout);
        case_children[i] = fork();
        if (case_children[i] == 0)
            case_main(i);
    }
}

static void cases_end(void)
{
    for (int i = 0; i < CASES; i++) {
        char name[40];

        CHECK_INT(1, child_exit_code(case_children[i]));
        snprintf(name, sizeof(name), "errors-%d", i);
        slurp(in_root(name), err, sizeof(err));
        printf("     %-10s %5d ms: %s", cases[i].what, (int)board->case_ms[i], err);
        CHECK(board->case_ms[i] < CASE_MS);
        if (strstr(err, cases[i].cause) == NULL)
            GP_TEST_FAIL("%s: %s", cases[i].what, err);
        proxy_stop(&case_proxies[i]);
    }
}

TEST(network_faults_lose_no_acknowledged_job_and_do_not_disturb_the_host)
{
    const char *seconds = getenv("GRADPOOL_HOSTS_SECONDS"), *seed = getenv("GRADPOOL_HOSTS_SEED");
    pid_t clients[ALL];

    if (!netns_begin())
        SKIP("two hosts need two network namespaces: %s", netns_reason);
    if (!hosts_begin()) {
        hosts_end();
        return;
    }
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t training = training_start();

    on_host();
    pid_t scheduler = pid_of(0);

    elsewhere();
    REQUIRE(board != MAP_FAILED);
    cases_begin();
    REQUIRE(proxy_start(&between, HOST_A, PORT, 7));
    for (int i = 0; i < ALL; i++)
        clients[i] = client_start(i, i < CLIENTS ? between.port : PORT);
    await_progress(0, ALL, "the beginning");
    if (seconds != NULL)
        at_random(atof(seconds), seed != NULL ? strtoull(seed, NULL, 10) : 1);
    else
        each_once();
    __atomic_store_n(&board->stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < ALL; i++) {
        CHECK_INT(0, child_exit_code(clients[i]));
        printf("     %-6s %5d calls, %3d errors, slowest %5d ms\n", client_name(i), (int)board->calls[i],
               (int)board->errors[i], (int)board->slowest_ms[i]);
    }
    CHECK_INT(0, board->wrong);
    proxy_counts counts = proxy_get_counts(&between);

    printf("     proxy: %d connections, %d KiB, %d bits changed, %d ended\n", (int)counts.links,
           (int)(counts.bytes >> 10), (int)counts.bits_changed, (int)counts.ended);

    /* random faults need not include these */
    CHECK(seconds != NULL || (counts.ended > 0 && counts.bits_changed > 0));
    proxy_stop(&between);
    cases_end();
    check_history();
    check_nothing_was_believed();
    training_end(training);
    on_host();
    CHECK(pid_of(0) > 1 && (pid_of(0) == scheduler) == (schedulers_killed == 0));
    munmap(board, sizeof(*board));
    board = NULL;
    hosts_end();
}
