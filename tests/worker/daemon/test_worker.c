/* test_worker.c: the real worker with the real engine; this program is the scheduler and the
 * client. */
#include "common/base/memory/buffer.h"
#include "common/model/graph/netspec.h"
#include "tests/worker/stage.h"

enum { LENET_PARAMETERS = 129068 };

static char *lenet; /* JSON */
static float weights[LENET_PARAMETERS];

static bool lenet_begin(uint32_t count)
{
    gp_netspec *spec;
    gp_buffer text;
    gp_error err;
    size_t bytes;

    gp_buffer_init(&text, 1 << 20);
    if (gp_zoo_build(&spec, "lenet", NULL, 0, &err) != GP_OK ||
        gp_netspec_to_json(spec, &text, false, &err) != GP_OK) {
        GP_TEST_FAIL("lenet: %s", err.message);
        return false;
    }
    gp_netspec_free(spec);
    lenet = (char *)gp_buffer_take(&text, &bytes);
    stage_network = lenet;
    stage_data = "synthetic:28x28x1:10:600";
    return lease_begin(count);
}

TEARDOWN()
{
    gp_free(lenet);
    lenet = NULL;
    stage_close();
}

/* Wait for train_done and receive the weights, if any. */
static bool await_done(worker *w, gp_train_done *done, bool *has_weights)
{
    gp_incoming in;
    gp_error err;

    if (!await(w->client, GP_ID(train_done), &in))
        return false;
    CHECK_STATUS(GP_OK, gp_incoming_decode(&in, done, &err));
    *has_weights = in.payload_count == 2 && weights_receive(w, weights, sizeof(weights));
    gp_incoming_close(&in);
    return true;
}

TEST(two_workers_train_lenet_and_predict_with_its_weights)
{
    gp_predict_begin begin = { .data = "synthetic:28x28x1:10:600", .batch = 100 };
    gp_train_done done[2];
    gp_train_ready ready;
    gp_predict_ready predict;
    gp_predict_part part;
    bool has_weights[2];

    REQUIRE(lenet_begin(2));
    for (int i = 0; i < 2; i++)
        train(&s.workers[i], 7, 1, 2, "{\"max-epochs\":2,\"mini-batch-size\":100}");
    for (int i = 0; i < 2; i++) {
        if (await_decoded(s.workers[i].client, &gp_msg_train_ready, &ready, NULL)) {
            CHECK_INT(i, ready.rank);
            CHECK_INT(2, ready.world);
            CHECK_INT(50, ready.batch_rank);
            CHECK_INT(LENET_PARAMETERS, ready.parameters);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (!await_done(&s.workers[i], &done[i], &has_weights[i]))
            continue;
        CHECK_TEXT("", done[i].message);
        CHECK_INT(GP_OK, done[i].status);
        CHECK_INT(12, done[i].step);
        CHECK_INT(i == 0, has_weights[i]);
    }
    CHECK(done[0].loss == done[1].loss); /* the reduced sums are bitwise identical */

    predict_open(&s.workers[1], 7, &begin, lenet, weights, sizeof(weights));
    if (await_decoded(s.workers[1].client, &gp_msg_predict_ready, &predict, NULL))
        CHECK_INT(600, predict.samples);
    ask(&s.workers[1], of(7, 1), &gp_msg_predict_ask, &(gp_predict_ask){ .first = 500, .count = 100 }, NULL,
        0);
    if (await_decoded(s.workers[1].client, &gp_msg_predict_part, &part, NULL))
        CHECK_INT(100, part.count);
}

#define LONG_TRAINING "{\"max-epochs\":1000000,\"mini-batch-size\":100}"

TEST(survivor_of_a_killed_rank_reports_an_error_and_serves_the_next_generation)
{
    gp_peer_lost lost = { .index = 2, .incarnation = 1, .cause = "killed by signal 9" };
    worker *first = &s.workers[0];
    gp_train_done done;
    bool has_weights;

    setenv("GRADPOOL_FAULT", "exchange:7:kill@2", 1);
    REQUIRE(lenet_begin(2));
    for (int i = 0; i < 2; i++)
        train(&s.workers[i], 7, 1, 2, LONG_TRAINING);
    int status = wait_exit(&s.workers[1]);

    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    tell(first, of(7, 1), &gp_msg_peer_lost, &lost);
    if (await_done(first, &done, &has_weights))
        CHECK_INT(GP_EPEER, done.status);
    grant_send(1, 7, 2);
    if (grant_acked(1, 7, 2) && attach(first, 7, 2)) {
        train(first, 7, 2, 1, "{\"max-epochs\":1,\"mini-batch-size\":100}");
        if (await_done(first, &done, &has_weights))
            CHECK_INT(GP_OK, done.status);
        CHECK_INT(6, done.step);
    }
}

TEST(revoke_in_the_middle_of_training_frees_both_workers)
{
    gp_revoked revoked;
    gp_train_done done;
    bool has_weights;

    REQUIRE(lenet_begin(2));
    for (int i = 0; i < 2; i++)
        train(&s.workers[i], 7, 1, 2, LONG_TRAINING);
    await_steps(&s.workers[0]);
    for (int i = 0; i < 2; i++)
        tell(&s.workers[i], of(7, 1), &gp_msg_revoke, &(gp_revoke){ .reason = "the client is gone" });
    for (int i = 0; i < 2; i++)
        await_decoded(s.scheduler, &gp_msg_revoked, &revoked, NULL);
    for (int i = 0; i < 2; i++)
        if (await_done(&s.workers[i], &done, &has_weights))
            CHECK(done.status != GP_OK);
    grant_send(2, 8, 1);
    if (grant_acked(2, 8, 1))
        for (int i = 0; i < 2; i++)
            CHECK(attach(&s.workers[i], 8, 1));
    for (int i = 0; i < 2; i++)
        train(&s.workers[i], 8, 1, 2, "{\"max-epochs\":1,\"mini-batch-size\":100}");
    for (int i = 0; i < 2; i++)
        if (await_done(&s.workers[i], &done, &has_weights))
            CHECK_INT(GP_OK, done.status);
}

TEST(soft_stop_ends_all_ranks_at_one_step_with_complete_weights)
{
    gp_train_done done[2] = { { .status = 0 } };
    bool has_weights[2] = { false, false };

    REQUIRE(lenet_begin(2));
    for (int i = 0; i < 2; i++)
        train(&s.workers[i], 7, 1, 2, LONG_TRAINING);
    await_steps(&s.workers[0]);
    for (int i = 0; i < 2; i++)
        ask(&s.workers[i], of(7, 1), &gp_msg_train_stop, &(gp_train_stop){ .hard = false }, NULL, 0);
    for (int i = 0; i < 2; i++)
        if (await_done(&s.workers[i], &done[i], &has_weights[i])) {
            CHECK_INT(GP_OK, done[i].status);
            CHECK_INT(GP_STOP_STOPPED, done[i].stop_reason);
        }
    CHECK_INT(done[0].step, done[1].step);
    CHECK(has_weights[0]);
}

TEST(rank_that_cannot_start_leaves_the_other_waiting_until_stopped)
{
    gp_error_reply reply;

    REQUIRE(lenet_begin(2));
    train(&s.workers[0], 7, 1, 2, LONG_TRAINING);
    stage_data = "/nonexistent";
    train(&s.workers[1], 7, 1, 2, LONG_TRAINING);
    check_refused(&s.workers[1], GP_ENOENT, "/nonexistent");
    ask(&s.workers[0], of(7, 1), &gp_msg_train_stop, &(gp_train_stop){ .hard = true }, NULL, 0);
    if (await_decoded(s.workers[0].client, &gp_msg_error_reply, &reply, NULL))
        CHECK_INT(GP_ECANCELED, reply.code);
}
