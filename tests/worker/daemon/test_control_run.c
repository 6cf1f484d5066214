/* test_control_run.c: a worker and a runner: which client gets the runner, and that the runner
 * exits before the lease is given back. This program is the scheduler and the client; the worker is
 * a real process without an engine. */
#include <fcntl.h>
#include <sys/mman.h>

#include "proto/local/runner_wire.h"
#include "tests/worker/stage.h"

/* Fetch the client end of the runner socket with that lease and generation. -1: refused. */
static int fetch(const worker *w, uint64_t lease, uint32_t generation)
{
    gp_control_socket_hello hello = {
        .protocol_min = 1, .protocol_max = 1, .role = GP_ROLE_CLIENT, .pid = 1
    };
    gp_control_socket_request request = { .what = GP_RUNNER_WHAT, .lease = lease, .generation = generation },
                              answer = { 0 };
    gp_control_socket_reply reply;
    gp_error err;
    int control_socket, fd = -1;

    memcpy(request.token, s.token, sizeof(request.token));
    if (gp_control_socket_connect(&control_socket, &reply, w->slot.door, &hello, TIMEOUT_MS, &err) != GP_OK ||
        gp_control_socket_send_fd(control_socket, &request, -1, &err) != GP_OK ||
        gp_control_socket_receive_fd(control_socket, &answer, &fd, TIMEOUT_MS, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    CHECK_INT(GP_RUNNER_WHAT, answer.what);
    close(control_socket);
    return fd;
}

static void run_open(worker *w, uint64_t lease, uint32_t generation)
{
    ask(w, of(lease, generation), &gp_msg_run_open, &(gp_run_open){ 0 }, NULL, 0);
}

static bool run_opened(worker *w, uint64_t lease, uint32_t generation)
{
    gp_ok_reply ok;

    run_open(w, lease, generation);
    return await_decoded(w->client, &gp_msg_ok_reply, &ok, NULL);
}

static void command(int runner, uint64_t job, const char *line)
{
    const char *const arguments[] = { "sh", "-c", line, NULL };
    const char *const environment[] = { "PATH=/usr/bin:/bin", NULL };
    gp_runner_spec spec = { .directory = "/", .arguments = arguments, .environment = environment };
    gp_runner_request request = { .kind = GP_RUNNER_START, .job = job };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), fds[GP_RUNNER_FDS] = { -1, null, null, null };
    gp_error err;

    if (gp_runner_spec_write(&fds[0], &request.spec_bytes, &spec, &err) != GP_OK ||
        gp_runner_ask_send(runner, &request, fds, GP_RUNNER_FDS, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    close(fds[0]);
    close(null);
}

/* Return the next answer; kind 0: end of file. */
static gp_runner_answer answer(int runner)
{
    int64_t deadline = gp_now_ms() + TIMEOUT_MS;
    gp_runner_answer a = { 0 };

    while (gp_runner_answer_receive(runner, &a, NULL) == GP_ETIMEDOUT && gp_now_ms() < deadline)
        poll(&(struct pollfd){ .fd = runner, .events = POLLIN }, 1, 100);
    CHECK(gp_now_ms() < deadline);
    return a;
}

TEARDOWN()
{
    stage_close();
}

TEST(only_the_attached_client_of_the_lease_gets_a_runner)
{
    worker *w = &s.workers[0];
    gp_runner_answer a;
    int runner;

    REQUIRE(workers_start(1) && dial(w));
    grant_send(1, 7, 1);
    grant_acked(1, 7, 1);
    run_open(w, 7, 1);
    check_refused(w, GP_EPERM, "not attached to lease 7");
    attach(w, 7, 1);
    CHECK_INT(-1, fetch(w, 7, 1)); /* not opened yet */
    run_open(w, 7, 2);
    check_refused(w, GP_ESTALE, "generation 2");
    CHECK(run_opened(w, 7, 1));
    CHECK(run_opened(w, 7, 1)); /* requested twice before the fetch: the same runner */
    CHECK_INT(-1, fetch(w, 7, 2));
    CHECK_INT(-1, fetch(w, 8, 1));
    s.token[3] ^= 1;
    CHECK_INT(-1, fetch(w, 7, 1));
    s.token[3] ^= 1;
    runner = fetch(w, 7, 1);
    CHECK(runner >= 0);
    CHECK_INT(-1, fetch(w, 7, 1)); /* only once */
    run_open(w, 7, 1);
    check_refused(w, GP_EBUSY, "still stopping earlier commands");
    train(w, 7, 1, 1, "\"steps\":1");
    check_refused(w, GP_ESTATE, "one operation at a time");
    command(runner, 5, "exit 3");
    CHECK_INT(GP_RUNNER_STARTED, answer(runner).kind);
    a = answer(runner);
    CHECK_INT(3, a.exit_code);
    close(runner);
}

TEST(worker_can_do_other_work_after_the_commands)
{
    worker *w = &s.workers[0];
    gp_train_done done;
    gp_error_reply reply;
    gp_incoming in;
    bool opened = false;

    REQUIRE(lease_begin(1));
    for (int i = 0; i < 3; i++) {
        /* The previous runner may not have exited yet. */
        for (int64_t until = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < until && !opened;) {
            run_open(w, 7, 1);
            if (!await(w->client, 0, &in))
                break;
            opened = in.type == &gp_msg_ok_reply;
            if (!opened && gp_incoming_decode(&in, &reply, NULL) == GP_OK)
                CHECK_INT(GP_EBUSY, reply.code);
            gp_incoming_close(&in);
            if (!opened)
                usleep(2000);
        }
        CHECK(opened);
        opened = false;
        int runner = fetch(w, 7, 1);

        command(runner, 1, "sleep 100");
        CHECK_INT(GP_RUNNER_STARTED, answer(runner).kind);
        close(runner);
    }
    for (int64_t until = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < until;) {
        train(w, 7, 1, 1, "\"steps\":2");
        if (!await(w->client, 0, &in))
            break;
        bool refused = in.type == &gp_msg_error_reply;

        gp_incoming_close(&in);
        if (!refused)
            break;
        usleep(2000);
    }
    if (await_decoded(w->client, &gp_msg_train_done, &done, NULL))
        CHECK_INT(GP_OK, done.status);
}

TEST(new_generation_leaves_running_commands_alone)
{
    worker *w = &s.workers[0];
    gp_runner_answer a;

    REQUIRE(lease_begin(1) && run_opened(w, 7, 1));
    int runner = fetch(w, 7, 1);

    command(runner, 1, "sleep 0.3; exit 4");
    CHECK_INT(GP_RUNNER_STARTED, answer(runner).kind);
    grant_send(1, 7, 2);
    grant_acked(1, 7, 2);
    a = answer(runner);
    CHECK_INT(GP_RUNNER_ENDED, a.kind);
    CHECK_INT(4, a.exit_code);
    command(runner, 2, "exit 5");
    CHECK_INT(GP_RUNNER_STARTED, answer(runner).kind);
    CHECK_INT(5, answer(runner).exit_code);
    close(runner);
}

static void check_end(void (*end)(worker *w))
{
    worker *w = &s.workers[0];
    gp_runner_answer a;

    if (lease_begin(1) && run_opened(w, 7, 1)) {
        int runner = fetch(w, 7, 1);

        command(runner, 1, "trap '' TERM; (setsid sleep 100 &) ; sleep 100; sleep 100");
        a = answer(runner);
        CHECK_INT(GP_RUNNER_STARTED, a.kind);
        end(w);

        /* end() waited for a message that follows the runner's exit: no process remains. */
        CHECK(kill((pid_t)a.pid, 0) != 0);
        CHECK_INT(0, answer(runner).kind);
        close(runner);
    }
}

static void end_by_revoke(worker *w)
{
    gp_revoke revoke = { .reason = "the client is gone" };
    gp_revoked revoked;

    tell(w, of(7, 1), &gp_msg_revoke, &revoke);
    await_decoded(s.scheduler, &gp_msg_revoked, &revoked, NULL);
}

static void end_by_grant(worker *w)
{
    (void)w;
    grant_send(1, 8, 1);
    grant_acked(1, 8, 1);
}

static void end_by_quit(worker *w)
{
    tell(w, (gp_envelope){ 0 }, &gp_msg_quit, &(gp_quit){ 0 });
    CHECK_INT(0, wait_exit(w));
}

TEST(lease_is_revoked_after_its_commands_exited)
{
    check_end(end_by_revoke);
}

TEST(next_lease_is_served_after_the_previous_commands_exited)
{
    check_end(end_by_grant);
}

TEST(quit_ends_commands_before_the_worker)
{
    check_end(end_by_quit);
}

TEST(killed_runner_leaves_no_orphan_and_can_be_replaced)
{
    worker *w = &s.workers[0];

    REQUIRE(lease_begin(1) && run_opened(w, 7, 1));
    int runner = fetch(w, 7, 1), file = memfd_create("pids", MFD_CLOEXEC),
        go = memfd_create("go", MFD_CLOEXEC);
    char line[300];
    pid_t orphan = 0;

    /* The orphan reports its pid through a descriptor of this process; $PPID is the runner. */
    snprintf(line, sizeof(line),
             "(setsid sh -c 'echo $$ > /proc/%d/fd/%d; exec sleep 100' &); "
             "until [ -s /proc/%d/fd/%d ] && [ -s /proc/%d/fd/%d ]; do sleep 0.01; done; kill -KILL $PPID; "
             "sleep 100",
             (int)getpid(), file, (int)getpid(), file, (int)getpid(), go);
    command(runner, 1, line);

    /* reported before the runner can be killed */
    CHECK_INT(GP_RUNNER_STARTED, answer(runner).kind);
    CHECK(write(go, "g", 1) == 1);
    CHECK_INT(0, answer(runner).kind);
    close(runner);
    lseek(file, 0, SEEK_SET);
    if (read(file, line, sizeof(line)) > 0)
        orphan = atoi(line);
    CHECK(orphan > 1);
    for (int64_t until = gp_now_ms() + TIMEOUT_MS; kill(orphan, 0) == 0 && gp_now_ms() < until;)
        usleep(2000);
    CHECK(kill(orphan, 0) != 0);
    if (run_opened(w, 7, 1)) {
        runner = fetch(w, 7, 1);
        command(runner, 1, "exit 6");
        CHECK_INT(GP_RUNNER_STARTED, answer(runner).kind);
        CHECK_INT(6, answer(runner).exit_code);
        close(runner);
    }
    close(file);
    close(go);
}
