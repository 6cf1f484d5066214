/* test_control.c: threads and sockets of the daemon, with an engine that computes nothing
 * (tests/fake/engine.h). This program is the scheduler and the client of real worker processes. */
#include "tests/descriptors.h"
#include "tests/worker/stage.h"

TEARDOWN()
{
    stage_close();
}

/* ---- joining and ending ---- */

TEST(worker_reports_its_slot_and_sends_heartbeats)
{
    gp_beat beat;
    worker *w = &s.workers[0];
    char control_socket[120];

    REQUIRE(workers_start(1));
    CHECK_INT(1, w->slot.index);
    CHECK_INT(1, w->slot.incarnation);
    CHECK_INT(w->pid, w->slot.pid);
    CHECK(w->slot.start_time > 0 && w->slot.shared);
    CHECK_INT(GP_DEVICE_CPU, w->slot.device_kind);
    CHECK_INT(GP_WORKER_IDLE, w->ready.state);
    gp_paths_worker_file(&s.paths, 1, 1, ".door", control_socket);
    CHECK_TEXT(control_socket, w->slot.door);
    if (await_decoded(s.scheduler, &gp_msg_beat, &beat, NULL))
        CHECK_INT(GP_WORKER_IDLE, beat.state);
}

TEST(sigterm_ends_a_worker_cleanly_and_removes_its_sockets)
{
    worker *w = &s.workers[0];

    REQUIRE(lease_begin(1));
    kill(w->pid, SIGTERM);
    CHECK_INT(0, wait_exit(w));
    CHECK(access(w->slot.door, F_OK) != 0);
    CHECK(access(w->slot.endpoint + 6, F_OK) != 0);
}

TEST(sigterm_ends_a_training_and_notifies_the_client)
{
    worker *w = &s.workers[0];
    gp_train_done done;

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"steps\":1000000");
    await_steps(w);
    kill(w->pid, SIGTERM);
    if (await_decoded(w->client, &gp_msg_train_done, &done, NULL))
        CHECK_INT(GP_ECANCELED, done.status);
    CHECK_INT(0, wait_exit(w));
}

TEST(worker_with_a_stuck_compute_thread_still_exits)
{
    worker *w = &s.workers[0];
    gp_train_ready ready;

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"deaf\"");
    await_decoded(w->client, &gp_msg_train_ready, &ready, NULL);
    kill(w->pid, SIGTERM);
    CHECK_INT(0, wait_exit(w));
}

/* ---- without a scheduler ---- */

TEST(worker_without_a_lease_exits_seconds_after_its_scheduler)
{
    REQUIRE(workers_start(1));
    int64_t died_ms = gp_now_ms();

    scheduler_dies();
    int status = wait_exit(&s.workers[0]);

    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(gp_now_ms() - died_ms >= 4400);
}

TEST(training_continues_without_a_scheduler_and_reports_its_lease_to_the_next)
{
    worker *w = &s.workers[0];
    gp_train_done done;

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"steps\":1000000");
    await_steps(w);
    scheduler_dies();
    for (int i = 0; i < 5; i++)
        await_steps(w);
    if (scheduler_begins(EPOCH + 1) && join(w)) {
        CHECK_INT(7, w->ready.lease);
        CHECK_INT(1, w->ready.generation);
        CHECK(memcmp(w->ready.token, s.token, sizeof(s.token)) == 0);
        CHECK_INT(w->pid, w->ready.slot.pid);
        CHECK_INT(GP_WORKER_BUSY, w->ready.state);
        await_steps(w);
        tell(w, of(7, 1), &gp_msg_revoke, &(gp_revoke){ 0 });
        if (await_decoded(w->client, &gp_msg_train_done, &done, NULL))
            CHECK_INT(GP_ECANCELED, done.status);
    }
}

TEST(a_scheduler_of_an_older_epoch_is_refused)
{
    worker *w = &s.workers[0];
    gp_incoming in;

    REQUIRE(workers_start(1));
    scheduler_dies();
    if (scheduler_begins(EPOCH - 1)) {
        for (int64_t end = gp_now_ms() + 400; gp_now_ms() < end; usleep(2000)) {
            socket_serve();
            if (gp_channel_receive(s.scheduler, &in, NULL) == GP_OK) {
                GP_TEST_FAIL("the worker sent message %u to a scheduler with an older epoch",
                             in.envelope.message);
                gp_incoming_close(&in);
            }
        }
        scheduler_dies();
    }
    CHECK(scheduler_begins(EPOCH + 1) && join(w));
    CHECK_INT(0, w->ready.lease);
}

TEST(worker_leaves_a_running_scheduler_for_a_newer_one)
{
    worker *w = &s.workers[0];
    gp_control_socket_hello hello = {
        .protocol_min = 1, .protocol_max = 1, .role = GP_ROLE_SCHEDULER, .pid = 1
    };
    gp_control_socket_reply reply;
    gp_error err;
    int call = -1;

    REQUIRE(workers_start(1));
    gp_control_socket *old_socket = s.control_socket;
    gp_channel *old_channel = s.scheduler;

    if (scheduler_begins(EPOCH + 1)) {
        CHECK_STATUS(GP_OK, gp_control_socket_connect(&call, &reply, w->slot.door, &hello, TIMEOUT_MS, &err));
        CHECK(join(w));
        CHECK_INT(w->pid, w->ready.slot.pid);
    }
    if (call >= 0)
        close(call);
    gp_channel_close(old_channel, 0);
    gp_control_socket_close(old_socket);
}

TEST(quit_ends_a_worker)
{
    REQUIRE(workers_start(1));
    tell(&s.workers[0], (gp_envelope){ 0 }, &gp_msg_quit, &(gp_quit){ 0 });
    CHECK_INT(0, wait_exit(&s.workers[0]));
}

TEST(a_worker_without_a_scheduler_does_not_start)
{
    REQUIRE(scheduler_open());
    gp_control_socket_close(s.control_socket);
    s.control_socket = NULL;
    spawn(&s.workers[0], 1, "cpu");
    int status = wait_exit(&s.workers[0]);

    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

TEST(of_two_workers_on_one_gpu_the_second_joins_excluded_and_refuses_grants)
{
    gp_error_reply reply;
    worker *first = &s.workers[0], *second = &s.workers[1];
    char uuid[64];
    bool joined;

    snprintf(uuid, sizeof(uuid), "GPU-test-%d",
             (int)getpid()); /* claims are valid across runtime directories */
    if (scheduler_open()) {
        spawn(first, 1, uuid);
        joined = join(first);
        spawn(second, 2, uuid);
        if (joined && join(second)) {
            CHECK_INT(GP_WORKER_IDLE, first->ready.state);
            CHECK_INT(GP_DEVICE_CUDA, first->slot.device_kind);
            CHECK_INT(GP_WORKER_EXCLUDED, second->ready.state);
            CHECK_CONTAINS(second->ready.reason, "is held by worker 1 of pool default (pid ");
            grant_send(2, 7, 1);
            if (await_decoded(s.scheduler, &gp_msg_error_reply, &reply, NULL)) {
                CHECK_INT(GP_ENODEV, reply.code);
                CHECK_INT(2, reply.worker);
            }
        }
    }
    char claim[300];

    snprintf(claim, sizeof(claim), "%s/%s", s.paths.device_dir, uuid);
    unlink(claim);
}

/* ---- the lease ---- */

TEST(worker_serves_only_the_granted_lease_generation_and_token)
{
    worker *w = &s.workers[0];

    REQUIRE(workers_start(1) && dial(w));
    attach_send(w, 7, 1);
    check_refused(w, GP_ESTALE, "worker 1 has no lease");
    grant_send(1, 7, 2);
    grant_acked(1, 7, 2);
    attach_send(w, 7, 1);
    check_refused(w, GP_ESTALE, "has lease 7 generation 2, not lease 7 generation 1");
    attach_send(w, 8, 2);
    check_refused(w, GP_ESTALE, "lease 8");
    train(w, 7, 2, 1, "\"steps\":1");
    check_refused(w, GP_EPERM, "not attached to lease 7");
    s.token[3] ^= 1;
    attach_send(w, 7, 2);
    check_refused(w, GP_EPERM, "token");
    s.token[3] ^= 1;
    CHECK(attach(w, 7, 2));
    train(w, 7, 1, 1, "\"steps\":1");
    check_refused(w, GP_ESTALE, "generation 1");
    grant_send(1, 7, 1);
    gp_error_reply reply;

    if (await_decoded(s.scheduler, &gp_msg_error_reply, &reply, NULL))
        CHECK_INT(GP_ESTALE, reply.code);
}

TEST(revoke_is_acknowledged_after_the_training_ended)
{
    worker *w = &s.workers[0];
    gp_revoke revoke = { .reason = "the client is gone" };
    gp_train_done done;
    gp_revoked revoked;
    gp_envelope envelope;

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"steps\":1000000");
    await_steps(w);
    tell(w, of(7, 1), &gp_msg_revoke, &revoke);
    if (await_decoded(s.scheduler, &gp_msg_revoked, &revoked, &envelope))
        CHECK_INT(7, envelope.lease);
    if (await_decoded(w->client, &gp_msg_train_done, &done, NULL))
        CHECK_INT(GP_ECANCELED, done.status);
    train(w, 7, 1, 1, "\"steps\":1");
    check_refused(w, GP_ESTALE, "has no lease");
    tell(w, of(6, 1), &gp_msg_revoke, &revoke); /* a lease that it never had: nothing to end */
    await_decoded(s.scheduler, &gp_msg_revoked, &revoked, &envelope);
    CHECK_INT(6, envelope.lease);
    grant_send(1, 8, 1);
    if (grant_acked(1, 8, 1) && attach(w, 8, 1)) {
        train(w, 8, 1, 1, "\"steps\":3");
        if (await_decoded(w->client, &gp_msg_train_done, &done, NULL))
            CHECK_INT(GP_OK, done.status);
        CHECK_INT(3, done.step);
    }
}

TEST(new_generation_is_acknowledged_after_the_old_training_ended)
{
    worker *w = &s.workers[0];
    gp_train_done done;

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"steps\":1000000");
    await_steps(w);
    grant_send(1, 7, 2);
    grant_acked(1, 7, 2);

    /* Sent before the acknowledgement, so it has arrived. */
    if (await_decoded(w->client, &gp_msg_train_done, &done, NULL))
        CHECK_INT(GP_ECANCELED, done.status);
    if (attach(w, 7, 2)) {
        train(w, 7, 2, 1, "\"steps\":2");
        if (await_decoded(w->client, &gp_msg_train_done, &done, NULL))
            CHECK_INT(GP_OK, done.status);
    }
}

TEST(stop_for_an_ended_generation_has_no_effect_and_no_error)
{
    worker *w = &s.workers[0];
    gp_envelope stop = of(7, 1), envelope;
    gp_error_reply reply;

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"steps\":1000000");
    await_steps(w);
    grant_send(1, 7, 2);
    grant_acked(1, 7, 2);
    stop.correlation = 5;
    ask(w, stop, &gp_msg_train_stop, &(gp_train_stop){ .pause = 1 }, NULL, 0);
    train(w, 7, 1, 1, "\"steps\":1");

    /* the first error is for train_begin */
    if (await_decoded(w->client, &gp_msg_error_reply, &reply, &envelope))
        CHECK_INT(701, envelope.correlation);
}

/* ---- training ---- */

TEST(training_reports_ready_then_all_steps_then_done_with_weights)
{
    static gp_train_steps steps;
    worker *w = &s.workers[0];
    uint64_t last = 0, validations = 0;
    bool ended = false;
    gp_incoming in;
    gp_error err;

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"steps\":200");
    CHECK(await(w->client, 0, &in));
    CHECK_INT(GP_ID(train_ready), in.envelope.message); /* always first */
    CHECK_INT(701, in.envelope.correlation);
    gp_incoming_close(&in);
    while (!ended && await(w->client, 0, &in)) {
        if (in.envelope.message == GP_ID(train_steps) && gp_incoming_decode(&in, &steps, &err) == GP_OK)
            for (uint32_t i = 0; i < steps.records_count; i++)
                CHECK_INT(++last, steps.records[i].step);
        validations += in.envelope.message == GP_ID(train_validation);
        ended = in.envelope.message == GP_ID(train_done);
        if (ended) {
            float weights[4] = { 0 };

            CHECK_INT(2, in.payload_count);
            CHECK_INT(8, in.payloads[0].bytes);
            CHECK_INT(sizeof(weights), in.payloads[0].data[0]);
            weights_receive(w, weights, sizeof(weights));
            CHECK_NEAR(200, weights[3], 0);
            CHECK_INT(13, in.payloads[1].bytes);
        }
        gp_incoming_close(&in);
    }
    CHECK_INT(200, last);
    CHECK_INT(20, validations);
    CHECK_INT(0, steps.dropped);
}

TEST(training_that_cannot_start_gives_an_error_and_the_next_one_starts)
{
    worker *w = &s.workers[0];
    gp_train_done done;
    gp_train_begin begin = { .data = "/data", .workers = 1 };

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"refuse\"");
    check_refused(w, GP_EINVAL, "no data at /data");
    train(w, 7, 1, 2, "\"steps\":1");
    check_refused(w, GP_EINVAL, "2 workers for rank 0 of a lease of 1");
    ask(w, of(7, 1), &gp_msg_train_begin, &begin, NULL, 0);
    check_refused(w, GP_EPROTO, "0 payloads");
    train(w, 7, 1, 1, "\"steps\":1000000");
    await_steps(w);
    train(w, 7, 1, 1, "\"steps\":1");
    check_refused(w, GP_ESTATE, "is training: it runs one operation");
    ask(w, of(7, 1), &gp_msg_train_stop, &(gp_train_stop){ .hard = false }, NULL, 0);
    if (await_decoded(w->client, &gp_msg_train_done, &done, NULL)) {
        CHECK_INT(GP_OK, done.status);
        CHECK_INT(GP_STOP_STOPPED, done.stop_reason);
    }
}

TEST(ranks_exchange_descriptors_through_control_sockets)
{
    gp_train_done done;

    REQUIRE(lease_begin(WORKERS));
    for (int round = 0; round < 2;
         round++) { /* repeated with the same grant: no state of the first round remains */
        train(&s.workers[0], 7, 1, WORKERS, "\"meet\" \"steps\":2");
        usleep(50000 * round); /* the descriptor of the other rank is not published yet */
        train(&s.workers[1], 7, 1, WORKERS, "\"meet\" \"steps\":2");
        for (int i = 0; i < WORKERS; i++)
            if (await_decoded(s.workers[i].client, &gp_msg_train_done, &done, NULL))
                CHECK_INT(GP_OK, done.status);
    }
}

TEST(every_rank_reports_steps_and_only_rank_0_sends_validations_and_weights)
{
    gp_incoming in;
    bool reported = false, ended = false;

    REQUIRE(lease_begin(WORKERS));
    train(&s.workers[1], 7, 1, WORKERS, "\"steps\":20");
    while (!ended && await(s.workers[1].client, 0, &in)) {
        reported |= in.envelope.message == GP_ID(train_steps);
        CHECK(in.envelope.message != GP_ID(train_validation));
        ended = in.envelope.message == GP_ID(train_done);
        CHECK_INT(0, in.payload_count);
        gp_incoming_close(&in);
    }
    CHECK(reported && ended);
}

/* Send train_begin with initial weights. Payload 2 has payload_bytes bytes and begins with
 * weights_bytes. */
static void train_with(worker *w, uint64_t weights_bytes, size_t payload_bytes)
{
    gp_train_begin begin = { .data = "/data", .workers = 1 };
    gp_payload payloads[] = { { .data = "{}", .bytes = 2 },
                              { .data = "\"steps\":1", .bytes = 9 },
                              { .data = &weights_bytes, .bytes = payload_bytes } };

    ask(w, of(7, 1), &gp_msg_train_begin, &begin, payloads, 3);
}

TEST(weights_need_a_sealed_descriptor_of_the_current_lease)
{
    float weights[4] = { 1, 2, 3, 4 }, got[4] = { 0 };
    worker *w = &s.workers[0];
    gp_train_ready ready;
    gp_train_done done;
    gp_error err;
    int sealed, open;

    REQUIRE_OK(gp_seal_new(&sealed, weights, sizeof(weights), &err), err);
    open = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(write(open, weights, sizeof(weights)) == sizeof(weights));
    if (lease_begin(1)) {
        weights_send(w, 7, 1, sealed);
        train_with(w, sizeof(weights), 4);
        check_refused(w, GP_EVERSION, "install the same version of gradpool on both sides");
        train_with(w, sizeof(weights), 8); /* the first message consumed the descriptor */
        check_refused(w, GP_EPROTO, "no descriptor of weights");
        weights_send(w, 7, 2, sealed);
        train_with(w, sizeof(weights), 8);
        check_refused(w, GP_EPROTO, "no descriptor of weights");
        weights_send(w, 7, 1, open);
        train_with(w, sizeof(weights), 8);
        check_refused(w, GP_EPROTO, "not sealed against writing");
        weights_send(w, 7, 1, sealed);
        train_with(w, 12, 8);
        check_refused(w, GP_EPROTO, "shared memory has 16 bytes, must have 12");
        weights_send(w, 7, 1, open);
        weights_send(w, 7, 1, sealed); /* the last descriptor counts */
        train_with(w, sizeof(weights), 8);
        if (await_decoded(w->client, &gp_msg_train_ready, &ready, NULL))
            CHECK_INT(4, ready.parameters);
        if (await_decoded(w->client, &gp_msg_train_done, &done, NULL) && weights_receive(w, got, sizeof(got)))
            CHECK_NEAR(1, got[3], 0);
        close(w->control_socket); /* a client that cannot receive the result gets an error */
        w->control_socket = -1;
        train_with(w, 0, 8);
        check_refused(w, GP_ESTATE, "no connection for weights");
    }
    close(sealed);
    close(open);
}

TEST(stranger_gets_no_descriptor_from_a_control_socket)
{
    gp_control_socket_hello hello = {
        .protocol_min = 1, .protocol_max = 1, .role = GP_ROLE_WORKER, .pid = 1
    };
    gp_control_socket_request request = { .what = 1, .lease = 7, .generation = 1 };
    worker *w = &s.workers[0];
    gp_control_socket_request answer;
    gp_control_socket_reply reply;
    gp_error err;
    int control_socket, fd = -1;

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"meet\" \"steps\":1000000");
    await_steps(w);
    REQUIRE_OK(gp_control_socket_connect(&control_socket, &reply, w->slot.door, &hello, TIMEOUT_MS, &err),
               err);
    CHECK_STATUS(GP_OK, gp_control_socket_send_fd(control_socket, &request, -1, &err)); /* token: all zeros */
    CHECK_STATUS(GP_OK, gp_control_socket_receive_fd(control_socket, &answer, &fd, TIMEOUT_MS, &err));
    CHECK_INT(-1, fd);
    CHECK_INT(0, answer.what);
    memcpy(request.token, s.token, sizeof(request.token));
    request.generation = 2;
    CHECK_STATUS(GP_OK, gp_control_socket_send_fd(control_socket, &request, -1, &err));
    CHECK_STATUS(GP_OK, gp_control_socket_receive_fd(control_socket, &answer, &fd, TIMEOUT_MS, &err));
    CHECK_INT(-1, fd);
    request.generation = 1;
    CHECK_STATUS(GP_OK, gp_control_socket_send_fd(control_socket, &request, -1, &err));
    CHECK_STATUS(GP_OK, gp_control_socket_receive_fd(control_socket, &answer, &fd, TIMEOUT_MS, &err));
    CHECK(fd >= 0);
    close(fd);
    close(control_socket);
}

TEST(leases_and_trainings_leak_no_descriptors)
{
    gp_train_done done;
    int before = 0, after = 0;
    bool going = lease_begin(WORKERS);

    for (uint64_t lease = 8; lease < 28 && going; lease++) {
        grant_send(WORKERS, lease, 1);
        going = grant_acked(WORKERS, lease, 1);
        for (int i = 0; i < WORKERS && going; i++)
            going = attach(&s.workers[i], lease, 1);
        for (int i = 0; i < WORKERS && going; i++)
            train(&s.workers[i], lease, 1, WORKERS, "\"meet\" \"steps\":1");
        for (int i = 0; i < WORKERS && going; i++)
            going = await_decoded(s.workers[i].client, &gp_msg_train_done, &done, NULL);
        if (lease == 12)
            before = descriptors_of(s.workers[0].pid);
    }

    /* The worker may not have received the end of file on the control socket yet. */
    for (int64_t deadline = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < deadline; usleep(2000)) {
        after = descriptors_of(s.workers[0].pid);
        if (after <= before)
            break;
    }
    CHECK(going && before > 0 && after <= before);
}

/* Wait until a training has published a descriptor. It then waits for the other ranks. */
static void await_meeting(worker *w)
{
    gp_control_socket_hello hello = {
        .protocol_min = 1, .protocol_max = 1, .role = GP_ROLE_WORKER, .pid = 1
    };
    gp_control_socket_request request = { .what = 1, .lease = 7, .generation = 1 }, answer;
    gp_control_socket_reply reply;
    gp_error err;
    int control_socket, fd = -1;

    memcpy(request.token, s.token, sizeof(request.token));
    REQUIRE_OK(gp_control_socket_connect(&control_socket, &reply, w->slot.door, &hello, TIMEOUT_MS, &err),
               err);
    for (int64_t deadline = gp_now_ms() + TIMEOUT_MS; fd < 0 && gp_now_ms() < deadline; usleep(2000)) {
        CHECK_STATUS(GP_OK, gp_control_socket_send_fd(control_socket, &request, -1, &err));
        CHECK_STATUS(GP_OK, gp_control_socket_receive_fd(control_socket, &answer, &fd, TIMEOUT_MS, &err));
    }
    CHECK(fd >= 0);
    if (fd >= 0)
        close(fd);
    close(control_socket);
}

TEST(loss_of_a_member_ends_the_training_and_names_the_member)
{
    gp_peer_lost lost = { .index = 2, .incarnation = 1, .cause = "killed by signal 9" };
    gp_train_done done;
    worker *w = &s.workers[0];

    REQUIRE(lease_begin(WORKERS));
    train(w, 7, 1, WORKERS, "\"steps\":1000000");
    await_steps(w);
    lost.index = 3; /* not a rank of this training, which continues */
    tell(w, of(7, 1), &gp_msg_peer_lost, &lost);
    await_steps(w);
    await_steps(w);
    lost.index = 2;
    tell(w, of(7, 1), &gp_msg_peer_lost, &lost);
    if (await_decoded(w->client, &gp_msg_train_done, &done, NULL)) {
        CHECK_INT(GP_EPEER, done.status);
        CHECK_INT(GP_STOP_FAILED, done.stop_reason);
        CHECK_CONTAINS(done.message, "worker 2 failed: killed by signal 9");
    }
    train(w, 7, 1, WORKERS, "\"meet\""); /* worker 2 never joins */
    await_meeting(w);
    tell(w, of(7, 1), &gp_msg_peer_lost, &lost);
    check_refused(w, GP_EPEER, "worker 2 failed");
}

TEST(injected_fault_kills_the_worker_at_its_fault_point)
{
    worker *w = &s.workers[0];

    setenv("GRADPOOL_FAULT", "exchange:3:kill@1.1", 1);
    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"steps\":1000000");
    int status = wait_exit(w);

    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A suspended client (Ctrl-Z, a closed laptop) keeps the link but reads nothing. The queue of 1000
 * messages fills up, then the worker's ring. The training continues, and the lease can be ended. */
TEST(client_that_reads_nothing_blocks_neither_the_training_nor_revoke)
{
    worker *w = &s.workers[0];
    gp_beat beat = { 0 };
    gp_revoked revoked;
    uint64_t before;

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"flood\" \"steps\":100000000");
    while (beat.step < 3000000 && await_decoded(s.scheduler, &gp_msg_beat, &beat, NULL))
        ;
    before = beat.step;
    if (await_decoded(s.scheduler, &gp_msg_beat, &beat, NULL))
        CHECK(beat.step > before);
    tell(w, of(7, 1), &gp_msg_revoke, &(gp_revoke){ .reason = "over" });
    await_decoded(s.scheduler, &gp_msg_revoked, &revoked, NULL);
    grant_send(1, 8, 1);
    grant_acked(1, 8, 1);
}

TEST(heartbeats_report_the_step_of_a_training)
{
    worker *w = &s.workers[0];
    gp_beat beat = { 0 };

    REQUIRE(lease_begin(1));
    train(w, 7, 1, 1, "\"steps\":1000000");
    for (int i = 0; i < 20 && beat.step == 0; i++)
        await_decoded(s.scheduler, &gp_msg_beat, &beat, NULL);
    CHECK_INT(GP_WORKER_BUSY, beat.state);
    CHECK(beat.step > 0 && beat.progress > 0);
}

/* ---- predicting ---- */

static void part_check(worker *w, uint64_t first, uint32_t count)
{
    gp_predict_part part;
    gp_incoming in;
    gp_error err;
    float score;

    if (!await(w->client, GP_ID(predict_part), &in))
        return;
    CHECK_STATUS(GP_OK, gp_incoming_decode(&in, &part, &err));
    CHECK_INT(first, part.first);
    CHECK_INT(count, part.count);
    CHECK_INT(4, in.payload_count); /* scores, labels, names, no confusion matrix */
    CHECK_INT(0, in.payloads[3].bytes);
    CHECK_INT(count * 12, in.payloads[0].bytes);
    CHECK_INT(count * 4, in.payloads[1].bytes);
    memcpy(&score, in.payloads[0].data + in.payloads[0].bytes - 4, 4);
    CHECK_NEAR((double)(first + count - 1) + 0.5, score, 0);
    gp_incoming_close(&in);
}

TEST(prediction_parts_are_answered_in_order_with_several_in_flight)
{
    gp_predict_begin begin = { .data = "/data", .batch = 10 };
    float weights[4] = { 0 };
    worker *w = &s.workers[0];
    gp_predict_ready ready;
    gp_ok_reply ok;
    gp_train_done done;

    REQUIRE(lease_begin(1));
    ask(w, of(7, 1), &gp_msg_predict_ask, &(gp_predict_ask){ .first = 0, .count = 1 }, NULL, 0);
    check_refused(w, GP_ESTATE, "open one first");
    predict_open(w, 7, &begin, "{}", weights, sizeof(weights));
    if (await_decoded(w->client, &gp_msg_predict_ready, &ready, NULL))
        CHECK_INT(100, ready.samples);
    for (uint32_t first = 0; first < 100; first += 25)
        ask(w, of(7, 1), &gp_msg_predict_ask, &(gp_predict_ask){ .first = first, .count = 25 }, NULL, 0);
    for (uint32_t first = 0; first < 100; first += 25)
        part_check(w, first, 25);
    ask(w, of(7, 1), &gp_msg_predict_ask, &(gp_predict_ask){ .first = 90, .count = 11 }, NULL, 0);
    check_refused(w, GP_EINVAL, "there are 100");
    train(w, 7, 1, 1, "\"steps\":1");
    check_refused(w, GP_ESTATE, "is predicting");
    ask(w, of(7, 1), &gp_msg_predict_end, &(gp_predict_end){ 0 }, NULL, 0);
    await_decoded(w->client, &gp_msg_ok_reply, &ok, NULL);
    train(w, 7, 1, 1, "\"steps\":1");
    if (await_decoded(w->client, &gp_msg_train_done, &done, NULL))
        CHECK_INT(GP_OK, done.status);
}

TEST(failed_predict_begin_leaves_no_prediction_open)
{
    gp_predict_begin begin = { .data = "/exhausts", .batch = 10 };
    float weights[4] = { 0 };
    worker *w = &s.workers[0];
    gp_predict_ready ready;

    REQUIRE(lease_begin(1));
    predict_open(w, 7, &begin, "{}", weights, sizeof(weights));
    check_refused(w, GP_ENOMEM, "no memory");
    strcpy(begin.data, "/data");
    predict_open(w, 7, &begin, "{}", weights, sizeof(weights));
    if (await_decoded(w->client, &gp_msg_predict_ready, &ready, NULL))
        CHECK_INT(100, ready.samples);
}

TEST(revoke_in_a_prediction_frees_it)
{
    gp_predict_begin begin = { .data = "/data", .batch = 10 };
    float weights[4] = { 0 };
    worker *w = &s.workers[0];
    gp_predict_ready ready;
    gp_revoked revoked;

    REQUIRE(lease_begin(1));
    predict_open(w, 7, &begin, "{}", weights, sizeof(weights));
    await_decoded(w->client, &gp_msg_predict_ready, &ready, NULL);
    tell(w, of(7, 1), &gp_msg_revoke, &(gp_revoke){ .reason = "over" });
    await_decoded(s.scheduler, &gp_msg_revoked, &revoked, NULL);
    grant_send(1, 8, 1);
    if (grant_acked(1, 8, 1) && attach(w, 8, 1)) {
        predict_open(w, 8, &begin, "{}", weights, sizeof(weights));
        await_decoded(w->client, &gp_msg_predict_ready, &ready, NULL);
    }
}
