/* test_control_run.c -- a worker and the runner beside it: who gets the runner, and that it is gone before the lease
 * is.  This program is the scheduler and the client; the worker is a real process without an engine. */
#include <fcntl.h>
#include <sys/mman.h>

#include "proto/local/runner_wire.h"
#include "tests/worker/stage.h"

/* The client's end of the runner's socket by those words; -1 = none was given. */
static int fetch(const worker *w, uint64_t lease, uint32_t generation)
{
    gp_door_hello hello = { .protocol_min = 1, .protocol_max = 1, .role = GP_ROLE_CLIENT, .pid = 1 };
    gp_door_request request = { .what = GP_RUNNER_WHAT, .lease = lease, .generation = generation },
                    answer = { 0 };
    gp_door_reply reply;
    gp_error err;
    int door, fd = -1;

    memcpy(request.token, s.token, sizeof(request.token));
    if (gp_door_connect(&door, &reply, w->slot.door, &hello, PATIENCE_MS, &err) != GP_OK ||
        gp_door_send_fd(door, &request, -1, &err) != GP_OK ||
        gp_door_receive_fd(door, &answer, &fd, PATIENCE_MS, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    CHECK_INT(GP_RUNNER_WHAT, answer.what);
    close(door);
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

/* kind 0 = end of file. */
static gp_runner_answer answer(int runner)
{
    int64_t deadline = gp_now_ms() + PATIENCE_MS;
    gp_runner_answer a = { 0 };

    while (gp_runner_answer_receive(runner, &a, NULL) == GP_ETIMEDOUT && gp_now_ms() < deadline)
        poll(&(struct pollfd){ .fd = runner, .events = POLLIN }, 1, 100);
    CHECK(gp_now_ms() < deadline);
    return a;
}

TEST(only_the_attached_client_of_the_lease_gets_a_runner)
{
    worker *w = &s.workers[0];
    gp_runner_answer a;
    int runner;

    if (workers_start(1) && dial(w)) {
        grant_send(1, 7, 1);
        grant_acked(1, 7, 1);
        run_open(w, 7, 1);
        check_refused(w, GP_EPERM, "attach to lease 7 first");
        attach(w, 7, 1);
        CHECK_INT(-1, fetch(w, 7, 1)); /* not opened yet */
        run_open(w, 7, 2);
        check_refused(w, GP_ESTALE, "generation 2");
        CHECK(run_opened(w, 7, 1));
        CHECK(run_opened(w, 7, 1)); /* asked again before it was fetched: the same one */
        CHECK_INT(-1, fetch(w, 7, 2));
        CHECK_INT(-1, fetch(w, 8, 1));
        s.token[3] ^= 1;
        CHECK_INT(-1, fetch(w, 7, 1));
        s.token[3] ^= 1;
        runner = fetch(w, 7, 1);
        CHECK(runner >= 0);
        CHECK_INT(-1, fetch(w, 7, 1)); /* once */
        run_open(w, 7, 1);
        check_refused(w, GP_EBUSY, "still ends the commands");
        train(w, 7, 1, 1, "\"steps\":1");
        check_refused(w, GP_ESTATE, "one run at a time");
        command(runner, 5, "exit 3");
        CHECK_INT(GP_RUNNER_STARTED, answer(runner).kind);
        a = answer(runner);
        CHECK_INT(3, a.exit_code);
        close(runner);
    }
    stage_close();
}

TEST(a_worker_whose_client_is_done_with_commands_can_do_something_else)
{
    worker *w = &s.workers[0];
    gp_train_done done;
    gp_error_reply reply;
    gp_incoming in;
    bool opened = false;

    if (lease_begin(1)) {
        for (int i = 0; i < 3; i++) {
            /* The one before may still be ending. */
            for (int64_t until = gp_now_ms() + PATIENCE_MS; gp_now_ms() < until && !opened;) {
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
        for (int64_t until = gp_now_ms() + PATIENCE_MS; gp_now_ms() < until;) {
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
    stage_close();
}

TEST(a_new_generation_of_the_lease_does_not_touch_what_runs)
{
    worker *w = &s.workers[0];
    gp_runner_answer a;

    if (lease_begin(1) && run_opened(w, 7, 1)) {
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
    stage_close();
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
        /* What end() waited for came after the runner's end: nothing of it is left. */
        CHECK(kill((pid_t)a.pid, 0) != 0);
        CHECK_INT(0, answer(runner).kind);
        close(runner);
    }
    stage_close();
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

TEST(a_lease_is_revoked_when_nothing_of_its_commands_is_left)
{
    check_end(end_by_revoke);
}

TEST(another_lease_is_served_when_nothing_of_the_last_ones_commands_is_left)
{
    check_end(end_by_grant);
}

TEST(a_worker_that_is_told_to_quit_ends_its_commands_first)
{
    check_end(end_by_quit);
}

TEST(a_runner_that_is_killed_leaves_no_orphan_and_another_can_be_opened)
{
    worker *w = &s.workers[0];

    if (lease_begin(1) && run_opened(w, 7, 1)) {
        int runner = fetch(w, 7, 1), file = memfd_create("pids", MFD_CLOEXEC),
            go = memfd_create("go", MFD_CLOEXEC);
        char line[300];
        pid_t orphan = 0;

        /* The orphan's pid comes through a descriptor of ours; $PPID is the runner. */
        snprintf(
            line, sizeof(line),
            "(setsid sh -c 'echo $$ > /proc/%d/fd/%d; exec sleep 100' &); "
            "until [ -s /proc/%d/fd/%d ] && [ -s /proc/%d/fd/%d ]; do sleep 0.01; done; kill -KILL $PPID; "
            "sleep 100",
            (int)getpid(), file, (int)getpid(), file, (int)getpid(), go);
        command(runner, 1, line);
        CHECK_INT(GP_RUNNER_STARTED, answer(runner).kind); /* which it says before it can be killed */
        CHECK(write(go, "g", 1) == 1);
        CHECK_INT(0, answer(runner).kind);
        close(runner);
        lseek(file, 0, SEEK_SET);
        if (read(file, line, sizeof(line)) > 0)
            orphan = atoi(line);
        CHECK(orphan > 1);
        for (int64_t until = gp_now_ms() + PATIENCE_MS; kill(orphan, 0) == 0 && gp_now_ms() < until;)
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
    stage_close();
}
