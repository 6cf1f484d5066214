/* test_train_service.c: trainings and predictions on real pools, with worker failures. */
#include <errno.h>
#include <sys/time.h>

#include "common/base/system/file.h"
#include "tests/service/trained.h"

static const char *const quick[] = { "max-epochs=1", "mini-batch-size=64", "initial-learn-rate=0.05",
                                     "max-restarts=0", NULL };
static const char *const endless[] = { "max-epochs=1000", "mini-batch-size=64", "initial-learn-rate=0.01",
                                       "max-restarts=0", NULL };

static gp_pool *pool;
static gp_error err;
static char fault_reported[80]; /* path of the file that reports injected faults; for signal handlers */

/* Start a pool. fault (may be NULL): GRADPOOL_FAULT for the workers. */
static bool begin(const char *fault, uint32_t workers)
{
    pools_begin(fault);
    snprintf(fault_reported, sizeof(fault_reported), "%s/told", pools_root);
    setenv("GRADPOOL_FAULT_REPORT", fault_reported, 1);
    pool = NULL;
    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = workers }, &err) != GP_OK)
        GP_TEST_FAIL("no pool: %s", err.message);
    unsetenv("GRADPOOL_FAULT_REPORT");
    return pool != NULL;
}

static void end(void)
{
    gp_pool_close(pool);
    pool = NULL;
    pools_end();
}

TEARDOWN()
{
    end();
}

static gp_status train(const char *data, const char *const *options, gp_training **out)
{
    return gp_train(out, pool, &(gp_train_request){ .network = "lenet", .data = data, .options = options },
                    &err);
}

/* Check that a short training succeeds. */
static void check_trains(void)
{
    gp_training *training;
    gp_training_summary summary;

    REQUIRE_OK(train("digits:3000", quick, &training), err);
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

/* Train a model, and predict the samples of `data` with it. */
static gp_status train_and_predict(gp_evaluation *result, const char *trained_on, const char *data, seen *s)
{
    const char *model = in_root("model.onnx");
    gp_training *training = NULL;
    gp_status status = train(trained_on, quick, &training);

    if (status == GP_OK)
        status = gp_training_save(training, model, &err);
    gp_training_free(training);
    if (status != GP_OK)
        return status;
    return gp_predict(
        result, pool,
        &(gp_predict_request){ .model = model, .data = data, .on_result = take_prediction, .context = s },
        &err);
}

TEST(a_trained_model_predicts_every_sample_once_and_in_order)
{
    gp_evaluation result;
    seen s = { 0 };

    REQUIRE(begin(NULL, 2));
    REQUIRE_OK(train_and_predict(&result, "digits:6000", "digits:6000", &s), err);
    CHECK_INT(1000, result.count);
    CHECK_INT(1000, s.next);
    CHECK_NEAR(1.0 - (double)s.wrong / 1000, result.accuracy, 1e-9);
    CHECK(result.accuracy > 0.8);
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
    gp_training *training = NULL;
    gp_training_summary summary;
    int how = 1;
    gp_train_request request = { .network = "lenet",
                                 .data = "digits:2000",
                                 .options = endless,
                                 .events = { .step = stop_at_step, .context = &how },
                                 .stop = &stop_word };

    REQUIRE(begin(NULL, 2));
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
    check_trains();
}

/* The second epoch is worse, so the model of the resumed training has the weights of the first. */
TEST(numbers_of_a_resumed_training_are_those_of_the_best_weights)
{
    gp_training_summary summary[2];
    trained_model model[2];
    char path[120];
    const char *const options[2][8] = {
        { "mini-batch-size=100", "output-network=best-validation", path, "max-epochs=1",
          "initial-learn-rate=0.05", NULL },
        { "mini-batch-size=100", "output-network=best-validation", path, "max-epochs=2",
          "initial-learn-rate=0.5", "gradient-threshold=10", "resume=auto", NULL },
    };

    REQUIRE(begin(NULL, 2));
    snprintf(path, sizeof(path), "checkpoint-path=%s", in_root("checkpoints"));
    for (int i = 0; i < 2; i++) {
        gp_train_request request = { .network = "lenet", .data = "digits:2000", .options = options[i] };

        REQUIRE_OK(trained_run(&model[i], &summary[i], pool, &request, &err), err);
        CHECK_INT(20 * (i + 1), summary[i].steps);
        CHECK(summary[i].validation_accuracy > 0.1 && summary[i].validation_accuracy <= 1);
    }
    REQUIRE(trained_equal(&model[0], &model[1])); /* otherwise the test shows nothing */
    CHECK(summary[0].validation_loss == summary[1].validation_loss);
    CHECK(summary[0].validation_accuracy == summary[1].validation_accuracy);
    free(model[0].data);
    free(model[1].data);
}

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
    gp_training *training = NULL;
    gp_train_request request = {
        .network = "lenet", .data = "digits:2000", .options = endless, .stop = &stop_word
    };

    struct itimerval often = { .it_interval.tv_usec = 100000, .it_value.tv_usec = 100000 }, never = { 0 };

    REQUIRE(begin("forward:5:hang@1.1", 1));
    stop_word = 0;
    signal(SIGALRM, stop_hung);
    setitimer(ITIMER_REAL, &often, NULL);
    CHECK_STATUS(GP_ECANCELED, gp_train(&training, pool, &request, &err));
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK_INT(2, stop_word);
    stop_word = 0;
    check_trains();
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
    gp_train_validation_progress last;
    int reports, checks;
    bool late; /* progress was reported after the validation */
} progress_seen;

static void find_worker(void *context, const gp_train_info *facts)
{
    (void)context;
    (void)facts;
    suspended = (pid_t)pool->grant.slots[0].pid;
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
    gp_train_request request = { .network = "lenet",
                                 .data = "digits:2004",
                                 .options = quick,
                                 .events = { .begin = find_worker,
                                             .check = take_check,
                                             .check_progress = take_progress,
                                             .context = &progress } };

    REQUIRE(begin("validation:2:stop@1.1", 1));
    signal(SIGALRM, resume_suspended);
    setitimer(ITIMER_REAL, &often, NULL);
    CHECK_STATUS(GP_OK, gp_train(&training, pool, &request, &err));
    setitimer(ITIMER_REAL, &never, NULL);
    gp_training_free(training);
    CHECK_INT(1, progress.checks);
    CHECK(progress.reports >= 1 && !progress.late);
    CHECK_INT(334, progress.last.count);
    CHECK(progress.last.done >= 128 && progress.last.done < 334);
    CHECK(progress.last.seconds >= 2);
}

/* ---- worker failures ---- */

typedef struct murder {
    uint64_t at_step;
    pid_t victim;
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

static uint32_t workers_idle(void)
{
    gp_status_reply *reply;
    uint32_t idle = 0;

    if (pool_status(pool, &reply, NULL) != GP_OK)
        return 0;
    for (uint32_t i = 0; i < reply->workers_count; i++)
        idle += reply->workers[i].state == GP_WORKER_IDLE;
    gp_free(reply);
    return idle;
}

static void check_whole_again(uint32_t workers)
{
    AWAIT(workers_idle() == workers, 2);
    CHECK_INT(workers, workers_idle());
}

TEST(worker_killed_at_twenty_random_steps_is_reported_and_replaced)
{
    REQUIRE(begin(NULL, 2));
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
        check_whole_again(2);
    }
    check_trains();
}

TEST(worker_killed_in_each_phase_is_reported_and_the_next_training_works)
{
    static const char *const phases[] = { "loading", "forward", "exchange", "commit", "validation" };

    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        gp_training *training = NULL;
        char fault[64];

        /* the first process of worker 2 */
        snprintf(fault, sizeof(fault), "%s:1:kill@2.1", phases[i]);
        REQUIRE(begin(fault, 2));
        gp_status status = train("digits:2000", quick, &training);

        if (status != GP_EPEER)
            GP_TEST_FAIL("%s: %s: %s", phases[i], gp_status_name(status), status == GP_OK ? "" : err.message);
        else
            check_words(err.message, 2);
        check_trains();
        end();
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
        gp_training *training = NULL;
        gp_training_summary summary;
        char fault[64];

        /* 3 passes per step */
        snprintf(fault, sizeof(fault), "between-buckets:8:kill@%u.1", victim);
        REQUIRE(begin(fault, 2));
        const char *network = in_root("wide.json");

        REQUIRE_OK(gp_file_write(network, wide, strlen(wide), &err), err);
        gp_train_request request = { .network = network, .data = "digits:3000", .options = quick };

        CHECK_STATUS(GP_EPEER, gp_train(&training, pool, &request, &err));
        check_words(err.message, victim);
        REQUIRE_OK(gp_train(&training, pool, &request, &err), err);
        gp_training_summarize(training, &summary);
        CHECK_INT(47, summary.steps);
        CHECK(summary.validation_accuracy > 0.5);
        gp_training_free(training);
        end();
    }
}

/* Kill every worker of the lease except the first. */
static void murder_all_but_one(void *context, const gp_train_step *step)
{
    murder *m = context;
    const gp_lease_grant *grant = &pool->grant;

    if (m->done || step->step < m->at_step)
        return;
    m->done = true;
    for (uint32_t rank = 1; rank < grant->slots_count; rank++)
        kill((pid_t)grant->slots[rank].pid, SIGKILL);
}

TEST(workers_killed_together_are_reported)
{
    gp_training *training = NULL;
    murder m = { .at_step = 3 };
    gp_train_request request = { .network = "lenet",
                                 .data = "digits:2000",
                                 .options = endless,
                                 .events = { .step = murder_all_but_one, .context = &m } };

    REQUIRE(begin(NULL, 3));
    CHECK_STATUS(GP_EPEER, gp_train(&training, pool, &request, &err));
    CHECK(m.done);
    check_trains();
}

TEST(member_that_failed_before_attach_is_replaced)
{
    REQUIRE(begin(NULL, 2));
    REQUIRE_OK(pool_lease(pool, &(gp_lease_request){ 0 }, "test", NULL, &err), err);
    uint32_t generation = pool->generation;

    kill((pid_t)pool->grant.slots[0].pid, SIGKILL);
    REQUIRE_OK(pool_attach(pool, NULL, &err), err);
    CHECK_INT(generation + 1, pool->generation);
    pool_release(pool);
    check_trains();
}

TEST(predictions_are_complete_after_a_worker_failure)
{
    gp_evaluation result;
    seen s = { 0 };

    REQUIRE(begin("predict:3:kill@2.1", 2));
    REQUIRE_OK(train_and_predict(&result, "digits:2000", "synthetic:28x28x1:10:5000", &s), err);
    CHECK_INT(5000, result.count);
    CHECK_INT(5000, s.next);
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

    REQUIRE(begin(NULL, 1));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *options[] = { cases[i].option, NULL };
        gp_train_request request = { .network = cases[i].network, .data = cases[i].data, .options = options };
        gp_training *training = NULL;

        err.message[0] = '\0';
        CHECK(gp_train(&training, pool, &request, &err) != GP_OK);
        CHECK_CONTAINS(err.message, cases[i].words);
    }
    check_trains();
}
