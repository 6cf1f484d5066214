/* Tasks through a real worker process: the door, the messages and the end of a lease.  This program is the scheduler and
 * a client that opens its link by hand. */

#include "tests/descriptors.h"
#include "tests/worker/task/link_client.h"
#include "tests/worker/stage.h"

static link_client client; /* of worker 1 */

static void door_send(link_client *to, uint32_t what, uint64_t number, int fd)
{
    gp_door_request request = { .what = what, .lease = number, .generation = 1 };
    gp_error err;

    memcpy(request.token, s.token, sizeof(request.token));
    if (gp_door_send_fd(to->door, &request, fd, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
}

static void blob_send(link_client *to, uint64_t number, int fd)
{
    door_send(to, GP_DOOR_BLOB, number, fd);
    close(fd);
}

/* Descriptors through the door; then the caller asks. */
static bool link_dial(const worker *w, uint64_t lease)
{
    gp_door_hello hello = { .protocol_min = 1, .protocol_max = 1, .role = GP_ROLE_CLIENT, .pid = 1 };
    gp_door_reply reply;
    gp_error err;

    client_open(&client);
    client.send_blob = blob_send;
    if (gp_door_connect(&client.door, &reply, w->slot.door, &hello, PATIENCE_MS, &err) != GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        return false;
    }
    door_send(&client, GP_DOOR_SEGMENT, lease, client.segment);
    door_send(&client, GP_DOOR_BELL, lease, client.bell);
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
    close(client.bell);
    close(client.door);
}

static void link_close(void)
{
    link_hang_up();
    stage_close();
}

/* Whether the worker hangs up. */
static bool await_hang_up(void)
{
    gp_door_request request;
    gp_error err;

    return gp_door_receive_fd(client.door, &request, NULL, PATIENCE_MS, &err) == GP_EPEER;
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

TEST(a_client_opens_a_link_ships_an_object_and_its_call_is_answered)
{
    double x = 1.5;

    if (link_with_calls()) {
        CHECK(run(&client, function_of(&client, "square"), &x, sizeof(x)));
        memcpy(&x, last.content, sizeof(x));
        CHECK_NEAR(2.25, x, 0);
        CHECK(run(&client, function_of(&client, "grow"), &(size_t){ 1 << 20 }, sizeof(size_t)));
        CHECK_INT(1 << 20, last.bytes);
        CHECK(run(&client, function_of(&client, "about"), NULL, 0));
        CHECK_CONTAINS((const char *)last.content, "1 of 1, worker 1, attempt 1, cpu");
    }
    link_close();
}

TEST(a_link_is_opened_by_the_attached_client_of_the_lease_only)
{
    worker *w = &s.workers[0];
    gp_task_open newer = { .link_version = GP_LINK_VERSION, .task_abi = 99 };

    if (workers_start(1)) {
        grant_send(1, 7, 1);
        if (grant_acked(1, 7, 1) && dial(w) && link_dial(w, 7)) {
            task_open(w, 7, 1);
            check_refused(w, GP_EPERM, "attach to lease 7 first");
            CHECK(attach(w, 7, 1));
            task_open(w, 7, 2);
            check_refused(w, GP_ESTALE, "serves lease 7 generation 1");
            ask(w, of(7, 1), &gp_msg_task_open, &newer, NULL, 0);
            check_refused(w, GP_EVERSION, "ABI 99 of tasks, worker 1 has 1 and 1");
            task_open(w, 7, 1);
            gp_task_ready ready;

            CHECK(await_decoded(w->client, &gp_msg_task_ready, &ready, NULL));
            task_open(w, 7, 1);
            check_refused(w, GP_ESTATE, "is serving tasks");
        }
    }
    link_close();
}

TEST(descriptors_with_another_token_open_nothing)
{
    worker *w = &s.workers[0];

    if (lease_begin(1)) {
        s.token[3] ^= 1;
        if (link_dial(w, 7)) {
            task_open(w, 7, 1);
            check_refused(w, GP_ESTATE, "no segment and bell of this lease");
        }
    }
    link_close();
}

TEST(a_worker_whose_lease_ends_gives_it_back_and_asks_to_be_started_afresh)
{
    gp_grant_ack ack;

    if (link_with_calls()) {
        CHECK(run(&client, function_of(&client, "count_calls"), NULL, 0));
        CHECK(revoke_answered(7, true));
        CHECK(await_hang_up());
        grant_send(1, 8, 1); /* a scheduler that does not know */
        CHECK(await_decoded(s.scheduler, &gp_msg_grant_ack, &ack, NULL));
    }
    link_close();
}

TEST(a_link_through_which_nothing_came_leaves_nothing_behind)
{
    if (lease_begin(1) && link_open(&s.workers[0], 7))
        CHECK(revoke_answered(7, false));
    link_close();
}

TEST(revoke_ends_a_task_that_listens)
{
    if (link_with_calls()) {
        run_send(&client, function_of(&client, "until_canceled"), NULL, 0);
        CHECK(answer_any(&client));
        CHECK(revoke_answered(7, true));
    }
    link_close();
}

TEST(a_client_that_closes_its_link_can_train_or_open_another)
{
    worker *w = &s.workers[0];
    gp_door_request request;
    gp_error err;

    if (link_with_calls()) {
        call_new(&client, GP_CALL_CLOSE, NULL, 0);
        call_send(&client);
        CHECK_STATUS(GP_EPEER, gp_door_receive_fd(client.door, &request, NULL, PATIENCE_MS, &err));
        link_hang_up();
        if (link_open(w, 7) && answer(&client, object_send(&client, TASKS_CALLS, 1))) {
            CHECK_STATUS(GP_OK, last.head.status);
            CHECK(run(&client, function_of(&client, "empty"), NULL, 0));
        }
    }
    link_close();
}

TEST(a_client_that_dies_frees_the_worker)
{
    if (link_with_calls()) {
        run_send(&client, function_of(&client, "until_canceled"), NULL, 0);
        CHECK(answer_any(&client));
        close(client.door);
        for (int64_t until = gp_now_ms() + PATIENCE_MS;
             gp_link_running(client.link) != 0 && gp_now_ms() < until;)
            usleep(2000);
        CHECK_INT(0, gp_link_running(client.link));
        CHECK(revoke_answered(7, true));
    }
    link_close();
}

TEST(tasks_go_on_over_a_new_generation_of_the_lease)
{
    gp_grant_ack ack;
    uint32_t echo;
    uint64_t id;

    if (link_with_calls()) {
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
    link_close();
}

TEST(a_worker_that_dies_leaves_what_it_had_answered_and_what_it_died_of)
{
    worker *w = &s.workers[0];
    uint32_t echo, count;
    uint64_t first;

    setenv("GRADPOOL_FAULT", "task_done:5:kill",
           1); /* object, 2 functions, 1 call; the next is not answered */
    if (link_with_calls()) {
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
        CHECK(gp_link_revoke(client.link, gp_link_position(client.link))); /* never begun */
    }
    link_close();
}

TEST(links_leave_no_descriptor_behind)
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
    for (int ms = 0; after > before && ms < PATIENCE_MS;
         ms++) { /* it hangs up first, and closes the rest then */
        gp_sleep_ms(1);
        after = descriptors_of(w->pid);
    }
    CHECK(going && before > 0 && after <= before);
    link_close();
}

/* What was short before is taken to be short again: that one is wrong must not hold back the answer before it. */
TEST(an_answer_is_announced_while_the_next_call_takes_unexpectedly_long)
{
    uint32_t work, shortly = 0, long_ms = 5000;
    uint64_t first;

    if (link_with_calls()) {
        work = function_of(&client, "work");
        for (int i = 0; i < 20; i++)
            run(&client, work, &shortly, sizeof(shortly));
        call_new(&client, GP_CALL_RUN, &shortly, sizeof(shortly))->function = work;
        first = client.id;
        run_send(&client, work, &long_ms, sizeof(long_ms));
        CHECK(answer(&client, first)); /* sleeps on the bell */
        CHECK(!gp_link_pending(client.link));
        for (int64_t until = gp_now_ms() + PATIENCE_MS;
             gp_link_running(client.link) != first + 1 && gp_now_ms() < until;)
            usleep(500);
        CHECK_INT(first + 1, gp_link_running(client.link));
    }
    link_close();
}

TEST(a_task_that_does_not_listen_keeps_the_lease_but_not_the_control_thread_nor_the_process)
{
    worker *w = &s.workers[0];
    gp_incoming in;

    if (link_with_calls()) {
        run_send(&client, function_of(&client, "work"), &(uint32_t){ 60000 }, 4);
        for (int64_t until = gp_now_ms() + PATIENCE_MS;
             gp_link_running(client.link) != client.id && gp_now_ms() < until;)
            usleep(2000);
        tell(w, of(7, 1), &gp_msg_revoke, &(gp_revoke){ .reason = "over" });
        for (int i = 0; i < 2 && await(s.scheduler, 0, &in); i++) {
            CHECK_INT(GP_ID(beat), in.envelope.message); /* and not revoked: a scheduler replaces it */
            gp_incoming_close(&in);
        }
        kill(w->pid, SIGTERM);
        CHECK_INT(0, wait_exit(w));
    }
    link_close();
}

/* Of the daemon's own functions, objects must see those that are promised to them and no others. */
TEST(a_worker_exports_the_interface_of_tasks_and_nothing_else)
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

/* The worker answers others while it computes. */
TEST(a_busy_worker_beats)
{
    gp_beat beat;

    if (link_with_calls()) {
        run_send(&client, function_of(&client, "until_canceled"), NULL, 0);
        CHECK(answer_any(&client));
        for (int i = 0; i < 2; i++)
            CHECK(await_decoded(s.scheduler, &gp_msg_beat, &beat, NULL));
        CHECK_INT(GP_WORKER_BUSY, beat.state);
    }
    link_close();
}
