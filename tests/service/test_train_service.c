/* test_train_service.c: trainings and predictions on real pools, with worker failures. */
#include <errno.h>
#include <sys/time.h>

#include "common/base/system/file.h"
#include "tests/service/pools.h"

static const char *const quick[] = { "max-epochs=1", "mini-batch-size=64", "initial-learn-rate=0.05",
                                     "max-restarts=0", NULL };
static const char *const endless[] = { "max-epochs=1000", "mini-batch-size=64", "initial-learn-rate=0.01",
                                       "max-restarts=0", NULL };

static gp_pool *open_pool(uint32_t workers)
{
    gp_pool *pool = NULL;
    gp_error err;

    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = workers }, &err) != GP_OK)
        GP_TEST_FAIL("no pool: %s", err.message);
    return pool;
}

static gp_status train(gp_pool *pool, const char *data, const char *const *options, gp_training **out,
                       gp_error *err)
{
    return gp_train(out, pool, &(gp_train_request){ .network = "lenet", .data = data, .options = options },
                    err);
}

/* Check that a short training succeeds. */
static void check_trains(gp_pool *pool)
{
    gp_training *training;
    gp_training_summary summary;
    gp_error err;

    REQUIRE_OK(train(pool, "digits:3000", quick, &training, &err), err);
    gp_training_summarize(training, &summary);
    CHECK_INT(47, summary.steps);
    CHECK(!summary.stopped);
    CHECK(summary.validation_accuracy > 0.5);
    gp_training_free(training);
}

/* ---- without failures ---- */

typedef struct seen {
    uint64_t next, wrong;
} seen;

static bool take_prediction(void *context, const gp_prediction *p)
{
    seen *s = context;
    double sum = 0;

    CHECK_INT(s->next, p->index);
    s->next++;
    for (uint32_t k = 0; k < p->classes; k++)
        sum += (double)p->scores[k];
    CHECK_NEAR(1, sum, 1e-4);
    s->wrong += (int32_t)p->predicted != p->label;
    return true;
}

TEST(a_trained_model_predicts_every_sample_once_and_in_order)
{
    gp_pool *pool;
    gp_training *training;
    gp_evaluation result;
    seen s = { 0 };
    char model[80];
    gp_error err;

    pools_begin(NULL);
    pool = open_pool(2);
    REQUIRE(pool != NULL);
    REQUIRE_OK(train(pool, "digits:6000", quick, &training, &err), err);
    snprintf(model, sizeof(model), "%s/model.onnx", pools_root);
    REQUIRE_OK(gp_training_save(training, model, &err), err);
    gp_training_free(training);
    gp_predict_request request = {
        .model = model, .data = "digits:6000", .on_result = take_prediction, .context = &s
    };

    REQUIRE_OK(gp_predict(&result, pool, &request, &err), err);
    CHECK_INT(1000, result.count);
    CHECK_INT(1000, s.next);
    CHECK_NEAR(1.0 - (double)s.wrong / 1000, result.accuracy, 1e-9);
    CHECK(result.accuracy > 0.8);
    gp_pool_close(pool);
    pools_end();
}

/* ---- stops ---- */

static volatile sig_atomic_t stop_word;
static uint64_t stop_at;

static void stop_at_step(void *context, const gp_train_step *step)
{
    if (step->rank == 0 && step->step >= stop_at)
        stop_word = *(const int *)context;
}

TEST(soft_stop_keeps_the_model_and_hard_stop_ends_at_once)
{
    gp_pool *pool;
    gp_training *training = NULL;
    gp_training_summary summary;
    gp_error err;
    int how = 1;
    gp_train_request request = { .network = "lenet",
                                 .data = "digits:2000",
                                 .options = endless,
                                 .events = { .step = stop_at_step, .context = &how },
                                 .stop = &stop_word };

    pools_begin(NULL);
    pool = open_pool(2);
    REQUIRE(pool != NULL);
    stop_word = 0;
    stop_at = 5;
    REQUIRE_OK(gp_train(&training, pool, &request, &err), err);
    gp_training_summarize(training, &summary);
    CHECK(summary.stopped);
    CHECK(summary.steps >= 5);
    gp_training_free(training);
    stop_word = 0;
    how = 2;
    CHECK_STATUS(GP_ECANCELED, gp_train(&training, pool, &request, &err));
    stop_word = 0;
    check_trains(pool);
    gp_pool_close(pool);
    pools_end();
}

static char fault_reported[80];

/* Timer: request a stop once the fault was injected; an earlier stop would leave the fault to the
 * next training. */
static void stop_hung(int signal_number)
{
    int before = errno;

    (void)signal_number;
    if (access(fault_reported, F_OK) == 0)
        stop_word = 2;
    errno = before;
}

TEST(hard_stop_ends_a_training_with_an_unresponsive_worker)
{
    gp_pool *pool;
    gp_training *training = NULL;
    gp_error err;
    gp_train_request request = {
        .network = "lenet", .data = "digits:2000", .options = endless, .stop = &stop_word
    };

    struct itimerval often = { .it_interval.tv_usec = 100000, .it_value.tv_usec = 100000 }, never = { 0 };

    pools_begin("forward:5:hang@1.1");
    snprintf(fault_reported, sizeof(fault_reported), "%s/told", pools_root);
    setenv("GRADPOOL_FAULT_REPORT", fault_reported, 1);
    pool = open_pool(1);
    unsetenv("GRADPOOL_FAULT_REPORT");
    REQUIRE(pool != NULL);
    stop_word = 0;
    signal(SIGALRM, stop_hung);
    setitimer(ITIMER_REAL, &often, NULL);
    CHECK_STATUS(GP_ECANCELED, gp_train(&training, pool, &request, &err));
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK_INT(2, stop_word);
    stop_word = 0;
    check_trains(pool);
    gp_pool_close(pool);
    pools_end();
}

static pid_t suspended; /* the worker; 0: unknown */

/* Timer, every 100 ms: resume the worker 2.2 s after the fault suspended it. */
static void resume_suspended(int signal_number)
{
    static int ticks;
    int before = errno;

    (void)signal_number;
    if (access(fault_reported, F_OK) == 0 && ++ticks == 22)
        kill(suspended, SIGCONT);
    errno = before;
}

typedef struct progress_seen {
    gp_pool *pool;
    gp_train_validation_progress last;
    int reports, checks;
    bool late; /* progress was reported after the validation */
} progress_seen;

static void find_worker(void *context, const gp_train_info *facts)
{
    (void)facts;
    suspended = (pid_t)((progress_seen *)context)->pool->grant.slots[0].pid;
}

static void take_progress(void *context, const gp_train_validation_progress *progress)
{
    progress_seen *s = context;

    s->last = *progress;
    s->reports++;
    s->late = s->late || s->checks > 0;
}

static void take_check(void *context, const gp_train_validation_result *check)
{
    (void)check;
    ((progress_seen *)context)->checks++;
}

/* The worker is suspended in the second of five calls: 334 samples of 2004, and 64 per call. */
TEST(a_validation_of_more_than_two_seconds_reports_its_progress)
{
    struct itimerval often = { .it_interval.tv_usec = 100000, .it_value.tv_usec = 100000 }, never = { 0 };
    progress_seen progress = { 0 };
    gp_training *training = NULL;
    gp_error err;
    gp_train_request request = { .network = "lenet",
                                 .data = "digits:2004",
                                 .options = quick,
                                 .events = { .begin = find_worker,
                                             .check = take_check,
                                             .check_progress = take_progress,
                                             .context = &progress } };

    pools_begin("validation:2:stop@1.1");
    snprintf(fault_reported, sizeof(fault_reported), "%s/told", pools_root);
    setenv("GRADPOOL_FAULT_REPORT", fault_reported, 1);
    progress.pool = open_pool(1);
    unsetenv("GRADPOOL_FAULT_REPORT");
    REQUIRE(progress.pool != NULL);
    signal(SIGALRM, resume_suspended);
    setitimer(ITIMER_REAL, &often, NULL);
    CHECK_STATUS(GP_OK, gp_train(&training, progress.pool, &request, &err));
    setitimer(ITIMER_REAL, &never, NULL);
    gp_training_free(training);
    CHECK_INT(1, progress.checks);
    CHECK(progress.reports >= 1 && !progress.late);
    CHECK_INT(334, progress.last.count);
    CHECK(progress.last.done >= 128 && progress.last.done < 334);
    CHECK(progress.last.seconds >= 2);
    gp_pool_close(progress.pool);
    pools_end();
}

/* ---- worker failures ---- */

typedef struct murder {
    uint64_t at_step;
    pid_t victim;
    gp_pool *pool; /* used by murder_all_but_one */
    bool done;
} murder;

static void murder_at_step(void *context, const gp_train_step *step)
{
    murder *m = context;

    if (!m->done && step->rank == 0 && step->step >= m->at_step)
        m->done = kill(m->victim, SIGKILL) == 0;
}

/* Check that the error message contains worker, signal and fix. */
static void check_words(const char *message, uint32_t worker)
{
    char who[40];

    snprintf(who, sizeof(who), "worker %u", worker);
    CHECK_CONTAINS(message, who);
    CHECK_CONTAINS(message, "signal 9");
    CHECK_CONTAINS(message, "step");
    CHECK_CONTAINS(message, "/log/worker-");
}

static void check_whole_again(gp_pool *pool, uint32_t workers)
{
    gp_timeout timeout = gp_timeout_in(POOLS_TIMEOUT_MS);
    uint32_t idle = 0;

    while (idle != workers && gp_timeout_left(timeout) > 0) {
        gp_status_reply *reply;

        idle = 0;
        if (pool_status(pool, &reply, NULL) != GP_OK)
            break;
        for (uint32_t i = 0; i < reply->workers_count; i++)
            idle += reply->workers[i].state == GP_WORKER_IDLE;
        gp_free(reply);
        gp_sleep_ms(2);
    }
    CHECK_INT(workers, idle);
}

TEST(worker_killed_at_twenty_random_steps_is_reported_and_replaced)
{
    gp_pool *pool;
    gp_error err;

    pools_begin(NULL);
    pool = open_pool(2);
    REQUIRE(pool != NULL);
    for (uint32_t seed = 0; seed < 20; seed++) {
        gp_status_reply *reply = pools_settled(pool);
        uint32_t victim = seed * 7 % 3 % 2; /* both workers, in no order */
        gp_training *training = NULL;
        murder m = { .at_step = 1 + seed * 37 % 60 };
        gp_train_request request = { .network = "lenet",
                                     .data = "digits:2000",
                                     .options = endless,
                                     .events = { .step = murder_at_step, .context = &m } };

        REQUIRE(reply != NULL && reply->workers_count == 2);
        m.victim = (pid_t)reply->workers[victim].slot.pid;
        gp_free(reply);
        CHECK_STATUS(GP_EPEER, gp_train(&training, pool, &request, &err));
        CHECK(m.done);
        check_words(err.message, victim + 1);
        check_whole_again(pool, 2);
    }
    check_trains(pool);
    gp_pool_close(pool);
    pools_end();
}

TEST(worker_killed_in_each_phase_is_reported_and_the_next_training_works)
{
    static const char *const phases[] = { "loading", "forward", "exchange", "commit", "validation" };

    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        gp_pool *pool;
        gp_training *training = NULL;
        gp_error err;
        char fault[64];

        /* the first process of worker 2 */
        snprintf(fault, sizeof(fault), "%s:1:kill@2.1", phases[i]);
        pools_begin(fault);
        pool = open_pool(2);
        REQUIRE(pool != NULL);
        gp_status status = train(pool, "digits:2000", quick, &training, &err);

        if (status != GP_EPEER)
            GP_TEST_FAIL("%s: %s: %s", phases[i], gp_status_name(status), status == GP_OK ? "" : err.message);
        else
            check_words(err.message, 2);
        check_trains(pool);
        gp_pool_close(pool);
        pools_end();
    }
}

/* 318,010 parameters: enough for sharded state, in the memory of the first worker. */
static const char wide[] = "{\"name\": \"wide\", \"input\": [1, 28, 28], \"scale\": 0.00392, \"layers\": ["
                           "{\"name\": \"fc1\", \"kind\": \"fc\", \"outputs\": 400}, "
                           "{\"name\": \"relu\", \"kind\": \"relu\"}, "
                           "{\"name\": \"fc2\", \"kind\": \"fc\", \"outputs\": 10}, "
                           "{\"name\": \"loss\", \"kind\": \"crossentropy\"}]}";

TEST(worker_killed_in_a_sharded_update_is_reported_and_the_next_training_works)
{
    for (uint32_t victim = 1; victim <= 2; victim++) {
        gp_pool *pool;
        gp_training *training = NULL;
        gp_training_summary summary;
        char fault[64], path[96];
        gp_error err;

        /* 3 passes per step */
        snprintf(fault, sizeof(fault), "between-buckets:8:kill@%u.1", victim);
        pools_begin(fault);
        snprintf(path, sizeof(path), "%s/wide.json", pools_root);
        REQUIRE_OK(gp_file_write(path, wide, strlen(wide), &err), err);
        pool = open_pool(2);
        REQUIRE(pool != NULL);
        gp_train_request request = { .network = path, .data = "digits:3000", .options = quick };

        CHECK_STATUS(GP_EPEER, gp_train(&training, pool, &request, &err));
        check_words(err.message, victim);
        REQUIRE_OK(gp_train(&training, pool, &request, &err), err);
        gp_training_summarize(training, &summary);
        CHECK_INT(47, summary.steps);
        CHECK(summary.validation_accuracy > 0.5);
        gp_training_free(training);
        gp_pool_close(pool);
        pools_end();
    }
}

/* Kill every worker of the lease except the first. */
static void murder_all_but_one(void *context, const gp_train_step *step)
{
    murder *m = context;
    const gp_lease_grant *grant = &m->pool->grant;

    if (m->done || step->step < m->at_step)
        return;
    m->done = true;
    for (uint32_t rank = 1; rank < grant->slots_count; rank++)
        kill((pid_t)grant->slots[rank].pid, SIGKILL);
}

TEST(workers_killed_together_are_reported)
{
    gp_training *training = NULL;
    gp_error err;
    murder m = { .at_step = 3 };
    gp_train_request request = { .network = "lenet",
                                 .data = "digits:2000",
                                 .options = endless,
                                 .events = { .step = murder_all_but_one, .context = &m } };

    pools_begin(NULL);
    m.pool = open_pool(3);
    REQUIRE(m.pool != NULL);
    CHECK_STATUS(GP_EPEER, gp_train(&training, m.pool, &request, &err));
    CHECK(m.done);
    check_trains(m.pool);
    gp_pool_close(m.pool);
    pools_end();
}

TEST(member_that_failed_before_attach_is_replaced)
{
    gp_pool *pool;
    gp_error err;

    pools_begin(NULL);
    pool = open_pool(2);
    REQUIRE(pool != NULL);
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "test", NULL, &err), err);
    uint32_t generation = pool->generation;

    kill((pid_t)pool->grant.slots[0].pid, SIGKILL);
    REQUIRE_OK(pool_attach(pool, &err), err);
    CHECK_INT(generation + 1, pool->generation);
    pool_release(pool);
    check_trains(pool);
    gp_pool_close(pool);
    pools_end();
}

TEST(predictions_are_complete_after_a_worker_failure)
{
    gp_pool *pool;
    gp_training *training;
    gp_evaluation result;
    seen s = { 0 };
    char model[80];
    gp_error err;

    pools_begin("predict:3:kill@2.1");
    pool = open_pool(2);
    REQUIRE(pool != NULL);
    REQUIRE_OK(train(pool, "digits:2000", quick, &training, &err), err);
    snprintf(model, sizeof(model), "%s/model.onnx", pools_root);
    REQUIRE_OK(gp_training_save(training, model, &err), err);
    gp_training_free(training);
    gp_predict_request request = {
        .model = model, .data = "synthetic:28x28x1:10:5000", .on_result = take_prediction, .context = &s
    };

    REQUIRE_OK(gp_predict(&result, pool, &request, &err), err);
    CHECK_INT(5000, result.count);
    CHECK_INT(5000, s.next);
    gp_pool_close(pool);
    pools_end();
}

/* ---- refusals ---- */

TEST(invalid_trainings_are_refused_with_one_error)
{
    static const struct {
        const char *network, *data, *option, *words;
    } cases[] = {
        { "lenett", "digits:100", NULL, "did you mean 'lenet'" },
        { "/nowhere.json", "digits:100", NULL, "/nowhere.json" },
        { "lenet", "/nowhere", NULL, "/nowhere" },
        { "lenet", "digits:100", "mini-batch-size=101", "has only 100 samples" },
        { "lenet", "digits:100", "initial-learn-rate=nan", "initial-learn-rate is nan" },
        { "lenet", "digits:100", "momentun=0.5", "did you mean 'momentum'" },
        { "lenet", "synthetic:4x4x1:10:300", NULL, "conv" },
    };
    gp_pool *pool;

    pools_begin(NULL);
    pool = open_pool(1);
    REQUIRE(pool != NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *options[] = { cases[i].option, NULL };
        gp_train_request request = { .network = cases[i].network, .data = cases[i].data, .options = options };
        gp_training *training = NULL;
        gp_error err = { 0 };

        CHECK(gp_train(&training, pool, &request, &err) != GP_OK);
        CHECK_CONTAINS(err.message, cases[i].words);
    }
    check_trains(pool);
    gp_pool_close(pool);
    pools_end();
}
