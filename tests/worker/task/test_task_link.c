/* test_task_link.c: tasks through a real worker process: control socket, messages and end of the
 * lease. This program is the scheduler and a client that opens its link without the client
 * library. */

#include "tests/descriptors.h"
#include "tests/worker/task/link_client.h"
#include "tests/worker/stage.h"

static link_client client; /* link to worker 1 */

static void socket_send(link_client *to, uint32_t what, uint64_t number, int fd)
{
    gp_control_socket_request request = { .what = what, .lease = number, .generation = 1 };
    gp_error err;

    memcpy(request.token, s.token, sizeof(request.token));
    if (gp_control_socket_send_fd(to->control_socket, &request, fd, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
}

static void blob_send(link_client *to, uint64_t number, int fd)
{
    socket_send(to, GP_CONTROL_SOCKET_BLOB, number, fd);
    close(fd);
}

/* Send the link's descriptors through the control socket; the caller then requests the link. */
static bool link_dial(const worker *w, uint64_t lease)
{
    gp_control_socket_hello hello = {
        .protocol_min = 1, .protocol_max = 1, .role = GP_ROLE_CLIENT, .pid = 1
    };
    gp_control_socket_reply reply;
    gp_error err;

    client_open(&client);
    client.send_blob = blob_send;
    if (gp_control_socket_connect(&client.control_socket, &reply, w->slot.door, &hello, TIMEOUT_MS, &err) !=
        GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        return false;
    }
    socket_send(&client, GP_CONTROL_SOCKET_SEGMENT, lease, client.segment);
    socket_send(&client, GP_CONTROL_SOCKET_WAKEUP, lease, client.wakeup_fd);
    return true;
}

static void task_open(worker *w, uint64_t lease, uint32_t generation)
{
    gp_task_open open = { .link_version = GP_LINK_VERSION, .task_abi = 1 };

    ask(w, of(lease, generation), &gp_msg_task_open, &open, NULL, 0);
}

static bool link_open(worker *w, uint64_t lease)
{
    gp_task_ready ready;

    if (!link_dial(w, lease))
        return false;
    task_open(w, lease, 1);
    if (!await_decoded(w->client, &gp_msg_task_ready, &ready, NULL))
        return false;
    CHECK_INT(GP_LINK_VERSION, ready.link_version);
    return true;
}

static bool link_with_calls(void)
{
    if (!lease_begin(1) || !link_open(&s.workers[0], 7) ||
        !answer(&client, object_send(&client, TASKS_CALLS, 1)))
        return false;
    CHECK_STATUS(GP_OK, last.head.status);
    CHECK_TEXT("", (const char *)last.content);
    return last.head.status == GP_OK;
}

static void link_hang_up(void)
{
    gp_link_free(client.link);
    close(client.segment);
    close(client.wakeup_fd);
    close(client.control_socket);
    client.link = NULL;
}

TEARDOWN()
{
    if (client.link != NULL)
        link_hang_up();
    stage_close();
}

/* Return whether the worker hangs up. */
static bool await_hang_up(void)
{
    gp_control_socket_request request;
    gp_error err;

    return gp_control_socket_receive_fd(client.control_socket, &request, NULL, TIMEOUT_MS, &err) == GP_EPEER;
}

static bool revoke_answered(uint64_t lease, bool recycle)
{
    gp_revoked revoked;

    tell(&s.workers[0], of(lease, 1), &gp_msg_revoke, &(gp_revoke){ .reason = "over" });
    if (!await_decoded(s.scheduler, &gp_msg_revoked, &revoked, NULL))
        return false;
    CHECK_INT(recycle, revoked.recycle);
    return true;
}

TEST(client_opens_a_link_sends_an_object_and_calls_it)
{
    double x = 1.5;

    REQUIRE(link_with_calls());
    CHECK(run(&client, function_of(&client, "square"), &x, sizeof(x)));
    memcpy(&x, last.content, sizeof(x));
    CHECK_NEAR(2.25, x, 0);
    CHECK(run(&client, function_of(&client, "grow"), &(size_t){ 1 << 20 }, sizeof(size_t)));
    CHECK_INT(1 << 20, last.bytes);
    CHECK(run(&client, function_of(&client, "about"), NULL, 0));
    CHECK_CONTAINS((const char *)last.content, "1 of 1, worker 1, attempt 1, cpu");
}

TEST(a_link_is_opened_by_the_attached_client_of_the_lease_only)
{
    worker *w = &s.workers[0];
    gp_task_open newer = { .link_version = GP_LINK_VERSION, .task_abi = 99 };

    REQUIRE(workers_start(1));
    grant_send(1, 7, 1);
    if (grant_acked(1, 7, 1) && dial(w) && link_dial(w, 7)) {
        task_open(w, 7, 1);
        check_refused(w, GP_EPERM, "not attached to lease 7");
        CHECK(attach(w, 7, 1));
        task_open(w, 7, 2);
        check_refused(w, GP_ESTALE, "has lease 7 generation 1");
        ask(w, of(7, 1), &gp_msg_task_open, &newer, NULL, 0);
        check_refused(w, GP_EVERSION, "task ABI 99, worker 1 has 1 and 1");
        task_open(w, 7, 1);
        gp_task_ready ready;

        CHECK(await_decoded(w->client, &gp_msg_task_ready, &ready, NULL));
        task_open(w, 7, 1);
        check_refused(w, GP_ESTATE, "is running tasks");
    }
}

TEST(descriptors_with_a_wrong_token_are_refused)
{
    worker *w = &s.workers[0];

    REQUIRE(lease_begin(1));
    s.token[3] ^= 1;
    if (link_dial(w, 7)) {
        task_open(w, 7, 1);
        check_refused(w, GP_ESTATE, "did not receive the descriptors of the link");
    }
}

TEST(worker_requests_a_restart_when_its_lease_ends)
{
    gp_grant_ack ack;

    REQUIRE(link_with_calls());
    CHECK(run(&client, function_of(&client, "count_calls"), NULL, 0));
    CHECK(revoke_answered(7, true));
    CHECK(await_hang_up());
    grant_send(1, 8, 1); /* a scheduler that ignores the request */
    CHECK(await_decoded(s.scheduler, &gp_msg_grant_ack, &ack, NULL));
}

TEST(unused_link_leaves_the_worker_clean)
{
    if (lease_begin(1) && link_open(&s.workers[0], 7))
        CHECK(revoke_answered(7, false));
}

TEST(revoke_ends_a_task_that_checks_for_cancel)
{
    REQUIRE(link_with_calls());
    run_send(&client, function_of(&client, "until_canceled"), NULL, 0);
    CHECK(answer_any(&client));
    CHECK(revoke_answered(7, true));
}

TEST(a_client_that_closes_its_link_can_train_or_open_another)
{
    worker *w = &s.workers[0];
    gp_control_socket_request request;
    gp_error err;

    REQUIRE(link_with_calls());
    call_new(&client, GP_CALL_CLOSE, NULL, 0);
    call_send(&client);
    CHECK_STATUS(GP_EPEER,
                 gp_control_socket_receive_fd(client.control_socket, &request, NULL, TIMEOUT_MS, &err));
    link_hang_up();
    if (link_open(w, 7) && answer(&client, object_send(&client, TASKS_CALLS, 1))) {
        CHECK_STATUS(GP_OK, last.head.status);
        CHECK(run(&client, function_of(&client, "empty"), NULL, 0));
    }
}

TEST(exit_of_the_client_frees_the_worker)
{
    REQUIRE(link_with_calls());
    run_send(&client, function_of(&client, "until_canceled"), NULL, 0);
    CHECK(answer_any(&client));
    close(client.control_socket);
    for (int64_t until = gp_now_ms() + TIMEOUT_MS; gp_link_running(client.link) != 0 && gp_now_ms() < until;)
        usleep(2000);
    CHECK_INT(0, gp_link_running(client.link));
    CHECK(revoke_answered(7, true));
}

TEST(tasks_continue_in_a_new_generation_of_the_lease)
{
    gp_grant_ack ack;
    uint32_t echo;
    uint64_t id;

    REQUIRE(link_with_calls());
    echo = function_of(&client, "echo");
    id = run_send(&client, function_of(&client, "until_canceled"), NULL, 0);
    CHECK(answer_any(&client));
    grant_send(1, 7, 2);
    CHECK(await_decoded(s.scheduler, &gp_msg_grant_ack, &ack, NULL));
    CHECK_INT(id, gp_link_running(client.link));
    gp_link_cancel(client.link, id);
    CHECK(answer(&client, id));
    CHECK(run(&client, echo, "still here", 10));
    CHECK_TEXT("still here", (const char *)last.content);
}

TEST(crashed_worker_leaves_its_answers_and_the_crashing_call)
{
    worker *w = &s.workers[0];
    uint32_t echo, count;
    uint64_t first;

    setenv("GRADPOOL_FAULT", "task_done:5:kill",
           1); /* object, 2 functions, 1 call; the next call is not answered */
    REQUIRE(link_with_calls());
    echo = function_of(&client, "echo");
    count = function_of(&client, "count_calls");
    first = run_send(&client, echo, "first", 5);
    run_send(&client, count, NULL, 0);
    run_send(&client, echo, "third", 5);
    wait_exit(w);
    CHECK(await_hang_up());
    CHECK(answer(&client, first));
    CHECK_TEXT("first", (const char *)last.content);
    CHECK(!gp_link_pending(client.link));
    CHECK_INT(first + 1, gp_link_running(client.link));
    CHECK(gp_link_revoke(client.link, gp_link_position(client.link))); /* never started */
}

TEST(links_leak_no_descriptors)
{
    worker *w = &s.workers[0];
    static unsigned char data[200000];
    int before = 0, after = 0;
    bool going = lease_begin(1);

    for (int round = 0; round < 20 && going; round++) {
        gp_call *call;
        uint32_t echo;

        going = link_open(w, 7) && answer(&client, object_send(&client, TASKS_CALLS, 1));
        if (!going)
            break;
        echo = function_of(&client, "echo");
        for (int i = 0; i < 3; i++) {
            call = call_new(&client, i == 0 ? GP_CALL_FILE : i == 1 ? GP_CALL_PUT : GP_CALL_RUN, "name", 5);
            call->function = echo;
            call->blob = blob_put(&client, file_of(data, sizeof(data), ALL_SEALS));
            call->payload_bytes = sizeof(data);
            CHECK(answer(&client, call_send(&client)));
            CHECK_STATUS(GP_OK, last.head.status);
        }
        CHECK_INT(sizeof(data), last.bytes);
        call_new(&client, GP_CALL_CLOSE, NULL, 0);
        call_send(&client);
        CHECK(await_hang_up());
        if (round < 19)
            link_hang_up();
        if (round == 4)
            before = descriptors_of(w->pid);
    }
    after = descriptors_of(w->pid);
    for (int ms = 0; after > before && ms < TIMEOUT_MS;
         ms++) { /* it hangs up first and then closes the other descriptors */
        gp_sleep_ms(1);
        after = descriptors_of(w->pid);
    }
    CHECK(going && before > 0 && after <= before);
}

/* A call is expected to be as short as before. If this is wrong, the previous answer must still be
 * sent in time. */
TEST(answer_is_announced_while_the_next_call_runs_unexpectedly_long)
{
    uint32_t work, shortly = 0, long_ms = 5000;
    uint64_t first;

    REQUIRE(link_with_calls());
    work = function_of(&client, "work");
    for (int i = 0; i < 20; i++)
        run(&client, work, &shortly, sizeof(shortly));
    call_new(&client, GP_CALL_RUN, &shortly, sizeof(shortly))->function = work;
    first = client.id;
    run_send(&client, work, &long_ms, sizeof(long_ms));
    CHECK(answer(&client, first)); /* sleeps on the eventfd */
    CHECK(!gp_link_pending(client.link));
    for (int64_t until = gp_now_ms() + TIMEOUT_MS;
         gp_link_running(client.link) != first + 1 && gp_now_ms() < until;)
        usleep(500);
    CHECK_INT(first + 1, gp_link_running(client.link));
}

TEST(uncancelable_task_keeps_the_lease_but_not_the_control_thread)
{
    worker *w = &s.workers[0];
    gp_incoming in;

    REQUIRE(link_with_calls());
    run_send(&client, function_of(&client, "work"), &(uint32_t){ 60000 }, 4);
    for (int64_t until = gp_now_ms() + TIMEOUT_MS;
         gp_link_running(client.link) != client.id && gp_now_ms() < until;)
        usleep(2000);
    tell(w, of(7, 1), &gp_msg_revoke, &(gp_revoke){ .reason = "over" });
    for (int i = 0; i < 2 && await(s.scheduler, 0, &in); i++) {
        /* not revoked: a scheduler replaces the worker */
        CHECK_INT(GP_ID(beat), in.envelope.message);
        gp_incoming_close(&in);
    }
    kill(w->pid, SIGTERM);
    CHECK_INT(0, wait_exit(w));
}

/* The control thread installs the handler again within 50 ms. */
TEST(worker_ends_by_sigterm_although_a_task_ignored_it)
{
    worker *w = &s.workers[0];
    int status = -1;

    REQUIRE(link_with_calls());
    CHECK(run(&client, function_of(&client, "take_sigterm"), NULL, 0));
    for (int64_t until = gp_now_ms() + TIMEOUT_MS;
         w->pid != 0 && gp_now_ms() < until && waitpid(w->pid, &status, WNOHANG) == 0; usleep(2000))
        kill(w->pid, SIGTERM);
    CHECK_INT(0, status);
    w->pid = 0;
}

/* Objects must see the documented functions of the daemon and no others. */
TEST(worker_exports_only_the_task_interface)
{
    static const char *const interface[] = { "gp_task_",        "gp_combine_",       "gp_fail",
                                             "gp_error_prefix", "gp_status_",        "gp_data_",
                                             "gp_model_",       "gp_layer_kind_add", "gp_confusion_" };
    FILE *names = popen("nm -D --defined-only " STAGE_PROGRAM, "r");
    char line[300], name[200];
    uint32_t exported = 0;

    REQUIRE(names != NULL);
    while (fgets(line, sizeof(line), names) != NULL) {
        bool known = false;

        if (sscanf(line, "%*s %*s %199s", name) != 1 || strncmp(name, "gp_", 3) != 0)
            continue;
        for (size_t i = 0; i < sizeof(interface) / sizeof(interface[0]); i++)
            known |= strncmp(name, interface[i], strlen(interface[i])) == 0;
        if (!known)
            GP_TEST_FAIL("%s is exported", name);
        exported++;
    }
    pclose(names);
    CHECK(exported > 65);
}

/* The worker sends heartbeats while it computes. */
TEST(busy_worker_sends_heartbeats)
{
    gp_beat beat;

    REQUIRE(link_with_calls());
    run_send(&client, function_of(&client, "until_canceled"), NULL, 0);
    CHECK(answer_any(&client));
    for (int i = 0; i < 2; i++)
        CHECK(await_decoded(s.scheduler, &gp_msg_beat, &beat, NULL));
    CHECK_INT(GP_WORKER_BUSY, beat.state);
}
