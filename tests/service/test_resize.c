/* test_resize.c: trainings that gain and lose workers while they run: on request, after failures,
 * and as clients come and go. */
#include "common/model/network.h"
#include "tests/leftovers.h"
#include "tests/service/commands.h"
#include "tests/service/trained.h"

/* SAMPLES: training samples in digits:1500; the others validate */
enum { SAMPLES = 1500, AWAITED_MS = 120000 };

static const char *const exact[] = {
    "max-epochs=4",      "mini-batch-size=96",      "initial-learn-rate=0.002",       "solver=adam",
    "reproducible=true", "validation-frequency=20", "output-network=best-validation", NULL
};

/* A training, and the events injected while it runs. */
typedef struct story {
    gp_pool *pool, *other; /* the training's handle, and another for requests */
    const char *data;      /* NULL: digits:1500 */
    gp_status status;
    gp_error err;
    gp_training_summary summary;
    trained_model model;
    uint32_t world;
    uint64_t step, group_step; /* last reported step, and first step of the current group */
    uint32_t regroups, grown, shrunk;

    /* first step reported out of order, and the step reported before it; 0: none */
    uint64_t unordered_step, step_before;
    void (*act)(struct story *s);

    /* for act */
    uint64_t random, next_act;
    uint32_t kills;
    bool pending;               /* a change of the group is pending */
    uint32_t killed;            /* index of a killed worker, until the group notices; 0: none */
    volatile sig_atomic_t stop; /* the expected event occurred: the training may end */
    char noted[8192];           /* notes so far */
    uint64_t stop_at;           /* the stop is requested at this step; 0: not yet */

    /* event that ends the training, for messages; NULL: the last step */
    const char *awaited;
    gp_timeout limit; /* limit for `awaited` */
    bool frail;       /* failed workers are not replaced: workers_spoil() */
} story;

static uint32_t draw(story *s, uint32_t below)
{
    s->random = s->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(s->random >> 33) % below;
}

static void on_begin(void *context, const gp_train_info *facts)
{
    ((story *)context)->world = facts->workers;
}

static void on_step(void *context, const gp_train_step *step)
{
    story *s = context;

    if (step->rank != 0)
        return;
    if (step->step != s->step + 1 && s->unordered_step == 0) {
        s->unordered_step = step->step;
        s->step_before = s->step;
    }
    s->step = step->step;
    if (s->act != NULL)
        s->act(s);
    if (s->awaited != NULL && s->stop_at == 0 && gp_timeout_left(s->limit) == 0) {
        GP_TEST_FAIL("step %d without the event %s; notes: %s", (int)s->step, s->awaited, s->noted);
        s->stop_at = s->step;
    }
    if (s->stop_at != 0 && s->step >= s->stop_at)
        s->stop = 1;
}

static void on_regroup(void *context, const gp_train_rescale *regroup)
{
    story *s = context;

    CHECK_INT(s->world, regroup->workers_before);
    if (regroup->step < s->group_step && strncmp(regroup->cause, "restarted:", 10) != 0)
        GP_TEST_FAIL("from step %d back to %d: %s", (int)s->group_step, (int)regroup->step, regroup->cause);
    CHECK(regroup->seconds >= 0 && regroup->cause[0] != '\0');
    s->regroups++;
    s->grown += regroup->workers > s->world;
    s->shrunk += regroup->workers < s->world;
    s->world = regroup->workers;
    s->group_step = regroup->step;
    s->pending = false;

    /* the group was formed before that worker was killed */
    for (uint32_t i = 0; i < regroup->workers && !regroup->died; i++)
        if (regroup->worker_index[i] == s->killed)
            return;
    s->killed = 0;
}

static void on_note(void *context, const char *sentence)
{
    story *s = context;

    strncat(s->noted, sentence, sizeof(s->noted) - strlen(s->noted) - 1);
}

/* Let the pool start workers through a link; workers_spoil() lets the link point to a program that
 * exits at once. */
static void workers_link(const char *program)
{
    const char *link = in_root("worker");

    unlink(link);
    if (symlink(program, link) != 0)
        GP_TEST_FAIL("cannot create %s", link);
}

static void workers_spoil(void)
{
    workers_link("/bin/false");
}

/* Run the training on a new pool. */
static void run(story *s, uint32_t workers, const gp_lease_request *lease, const char *const *options,
                const char *fault)
{
    gp_train_request request = {
        .network = "lenet",
        .data = s->data != NULL ? s->data : "digits:1500",
        .options = options,
        .stop = &s->stop,
        .events = { .begin = on_begin, .step = on_step, .regroup = on_regroup, .context = s }
    };

    pools_begin(fault);
    if (s->frail) {
        workers_link(getenv("GRADPOOL_WORKER"));
        setenv("GRADPOOL_WORKER", in_root("worker"), 1);
    }
    s->limit = gp_timeout_in(AWAITED_MS);
    if (gp_pool_open(&s->pool, &(gp_pool_options){ .workers = workers, .note = on_note, .context = s },
                     &s->err) != GP_OK ||
        gp_pool_open(&s->other, &(gp_pool_options){ .attach_only = true }, &s->err) != GP_OK) {
        GP_TEST_FAIL("no pool: %s", s->err.message);
        pools_end();
        return;
    }
    if (lease != NULL)
        request.lease = *lease;
    s->status = trained_run(&s->model, &s->summary, s->pool, &request, &s->err);
    gp_pool_close(s->other);
    gp_pool_close(s->pool);
    pools_end();
}

static gp_status ask(story *s, uint32_t workers, gp_error *e)
{
    return gp_training_resize(s->other, s->pool->lease, 0, workers, e);
}

static void check_went_well(const story *s)
{
    if (s->status != GP_OK)
        GP_TEST_FAIL("%s: %s", gp_status_name(s->status), s->err.message);
}

/* Every few steps, resize or kill a worker; never both at once, which might leave no worker. */
static void disturb(story *s)
{
    uint32_t world = s->pool->grant.slots_count;
    gp_error e;

    if (s->step < s->next_act || s->pending || s->killed != 0)
        return;
    s->next_act = s->step + 1 + draw(s, 6);
    if (world > 1 && draw(s, 3) == 0) {
        const gp_slot *slot = &s->pool->grant.slots[draw(s, world)];

        s->kills++;
        s->pending = true;
        s->killed = slot->index;
        kill((pid_t)slot->pid, SIGKILL);
    } else {
        uint32_t wanted = 1 + draw(s, 4);

        s->pending = wanted < world;
        if (ask(s, wanted, &e) != GP_OK)
            GP_TEST_FAIL("%u workers: %s", wanted, e.message);
    }
}

static void check_same(const story *wanted, const story *got, uint64_t seed)
{
    if (got->status != GP_OK)
        GP_TEST_FAIL("seed %d: %s", (int)seed, got->err.message);
    else if (!trained_equal(&got->model, &wanted->model))
        GP_TEST_FAIL("seed %d: the models differ", (int)seed);
    else if (got->unordered_step != 0)
        GP_TEST_FAIL("seed %d: step %d was reported after step %d; notes: %s", (int)seed,
                     (int)got->unordered_step, (int)got->step_before, got->noted);
    else if (got->step != wanted->step)
        GP_TEST_FAIL("seed %d: the last step was %d", (int)seed, (int)got->step);
}

TEST(model_is_bitwise_identical_after_kills_and_resizes_at_random_steps)
{
    story undisturbed = { 0 };
    uint32_t kills = 0, grown = 0, shrunk = 0;

    run(&undisturbed, 2, NULL, exact, NULL);
    REQUIRE(undisturbed.status == GP_OK && undisturbed.model.bytes > 0);
    CHECK(undisturbed.summary.validation_accuracy > 0.5);

    /* Joining workers may be late on a busy machine: repeat until each event occurred. */
    for (uint64_t seed = 1; seed <= 4 || (seed <= 20 && (kills == 0 || grown == 0 || shrunk == 0)); seed++) {
        story s = { .act = disturb, .random = seed * 0x9e3779b97f4a7c15ull, .next_act = 2 };

        run(&s, 4, NULL, exact, NULL);
        check_same(&undisturbed, &s, seed);
        kills += s.kills;
        grown += s.grown;
        shrunk += s.shrunk;
        free(s.model.data);
    }
    if (kills == 0 || grown == 0 || shrunk == 0)
        GP_TEST_FAIL("%u kills, %u groups grew, %u shrank", kills, grown, shrunk);
    free(undisturbed.model.data);
}

/* Kill the ranks 0 and 1 at once, twice. */
static void kill_two(story *s)
{
    if (s->step < s->next_act || s->pool->grant.slots_count < 4)
        return;
    s->next_act += 20;
    s->kills += 2;
    for (uint32_t rank = 0; rank < 2; rank++)
        kill((pid_t)s->pool->grant.slots[rank].pid, SIGKILL);
}

TEST(ranks_killed_together_cost_no_step_report)
{
    story undisturbed = { 0 }, s = { .act = kill_two, .next_act = 10 };

    run(&undisturbed, 2, NULL, exact, NULL);
    REQUIRE_OK(undisturbed.status, undisturbed.err);
    run(&s, 4, NULL, exact, NULL);
    check_same(&undisturbed, &s, 0);
    CHECK(s.kills >= 2);
    free(s.model.data);
    free(undisturbed.model.data);
}

/* Return whether the pool has replaced the workers with these process ids. */
static bool replaced(story *s, const uint32_t pids[2])
{
    gp_status_reply *reply = NULL;
    gp_error e;
    bool found = false;

    if (pool_status(s->other, &reply, &e) != GP_OK) {
        GP_TEST_FAIL("no status: %s", e.message);
        return true;
    }
    for (uint32_t i = 0; i < reply->workers_count; i++)
        found |= reply->workers[i].slot.pid == pids[0] || reply->workers[i].slot.pid == pids[1];
    gp_free(reply);
    return !found;
}

/* Kill both workers after they have sent all messages, and return when the scheduler has replaced
 * them. This process reads nothing meanwhile. Rank 0 sends the weights just before train_done. */
static void kill_after_the_last_step(story *s)
{
    struct pollfd weights = { .fd = s->pool->worker_sockets[0], .events = POLLIN };
    uint32_t pids[2];

    if (s->kills > 0 || s->step < s->next_act)
        return;
    if (poll(&weights, 1, AWAITED_MS) != 1)
        GP_TEST_FAIL("no weights from rank 0");
    poll(NULL, 0, 300);
    for (uint32_t rank = 0; rank < 2; rank++) {
        pids[rank] = s->pool->grant.slots[rank].pid;
        kill((pid_t)pids[rank], SIGKILL);
        s->kills++;
    }
    while (!replaced(s, pids) && gp_timeout_left(s->limit) > 0)
        poll(NULL, 0, 20);
}

TEST(workers_that_fail_after_the_last_step_do_not_take_the_result_with_them)
{
    story undisturbed = { 0 };
    uint32_t restarts = 1;

    run(&undisturbed, 2, NULL, exact, NULL);
    REQUIRE_OK(undisturbed.status, undisturbed.err);

    /* On a busy machine rank 0 may fail before it has sent train_done: repeat. */
    for (int times = 0; times < 5 && restarts > 0; times++) {
        story s = { .act = kill_after_the_last_step, .next_act = undisturbed.step - 3 };

        run(&s, 2, NULL, exact, NULL);
        check_same(&undisturbed, &s, 0);
        CHECK_INT(2, s.kills);
        restarts = s.summary.restarts;
        free(s.model.data);
    }
    CHECK_INT(0, restarts);
    free(undisturbed.model.data);
}

static void resize_often(story *s)
{
    gp_error e;

    if (s->step % 6 != 0 || s->pending)
        return;
    s->pending = true;
    if (ask(s, s->pool->grant.slots_count == 3 ? 1 : s->pool->grant.slots_count + 1, &e) != GP_OK)
        GP_TEST_FAIL("%s", e.message);
}

TEST(each_sample_counts_once_per_epoch_for_any_number_of_workers)
{
    static const char *const options[] = { "max-epochs=10", "mini-batch-size=50", "initial-learn-rate=0.05",
                                           NULL };
    story alone = { 0 };
    uint32_t grown = 0, shrunk = 0, regroups = 0;

    run(&alone, 3, NULL, options, NULL);
    REQUIRE_OK(alone.status, alone.err);
    CHECK_INT(10 * SAMPLES, alone.summary.samples_trained);

    /* A busy machine allows fewer resizes: repeat until each kind occurred. */
    for (int times = 0; times < 20 && (regroups < 3 || grown == 0 || shrunk == 0); times++) {
        story s = { .act = resize_often };

        run(&s, 3, NULL, options, NULL);
        REQUIRE_OK(s.status, s.err);
        CHECK_INT(s.regroups, s.summary.resizes);
        CHECK_INT(0, s.summary.restarts);
        CHECK_INT(0, s.unordered_step);
        CHECK_INT(10 * SAMPLES, s.summary.samples_trained);
        CHECK_INT(alone.summary.steps, s.summary.steps);
        CHECK_NEAR(alone.summary.validation_accuracy, s.summary.validation_accuracy,
                   0.02); /* a few hundred samples */
        regroups += s.regroups;
        grown += s.grown;
        shrunk += s.shrunk;
        free(s.model.data);
    }
    if (regroups < 3 || grown == 0 || shrunk == 0)
        GP_TEST_FAIL("20 trainings with %u regroups: %u grew, %u shrank", regroups, grown, shrunk);
    free(alone.model.data);
}

static void let_go(story *s)
{
    if (s->step == 4)
        pool_release(s->other);
    if (s->world == 3 && s->stop_at == 0)
        s->stop_at = s->step + 20;
}

TEST(elastic_training_starts_with_free_workers_and_adds_others_later)
{
    static const char *const options[] = { "max-epochs=100000", "mini-batch-size=50",
                                           "initial-learn-rate=0.02", "validation-frequency=100000", NULL };
    gp_train_request request = { .network = "lenet", .data = "digits:1500", .options = options };
    story s = { .act = let_go, .awaited = "three workers" };

    request.stop = &s.stop;
    gp_training *training = NULL;

    pools_begin(NULL);
    s.limit = gp_timeout_in(AWAITED_MS);
    request.events =
        (gp_train_events){ .begin = on_begin, .step = on_step, .regroup = on_regroup, .context = &s };
    request.lease = (gp_lease_request){ .workers_min = 1, .workers_max = 3 };
    REQUIRE_OK(gp_pool_open(&s.pool, &(gp_pool_options){ .workers = 3 }, &s.err), s.err);
    REQUIRE_OK(gp_pool_open(&s.other, &(gp_pool_options){ .attach_only = true }, &s.err), s.err);
    REQUIRE_OK(pool_lease(s.other, &(gp_lease_request){ .workers_min = 2, .workers_max = 2 }, "holding", NULL,
                          &s.err),
               s.err);
    s.status = gp_train(&training, s.pool, &request, &s.err);
    check_went_well(&s);
    CHECK(s.grown >= 1);
    CHECK_INT(3, s.world);
    CHECK_INT(0, s.shrunk);
    CHECK_INT(0, s.unordered_step);
    gp_training_free(training);
    gp_pool_close(s.other);
    gp_pool_close(s.pool);
    pools_end();
}

static void kill_last(story *s)
{
    if (s->step != 6 || s->kills++ != 0)
        return;
    workers_spoil();
    kill((pid_t)s->pool->grant.slots[s->pool->grant.slots_count - 1].pid, SIGKILL);
}

TEST(training_below_min_workers_waits_and_fails_if_none_can_join)
{
    static const char *const options[] = { "max-epochs=100000", "mini-batch-size=50", "min-workers=2", NULL };
    story s = { .act = kill_last, .awaited = "its error message", .frail = true };

    run(&s, 2, NULL, options, NULL);
    CHECK_STATUS(GP_EPEER, s.status == GP_ECANCELED ? GP_EPEER : s.status);
    CHECK_CONTAINS(s.err.message, "worker 2");
    CHECK_CONTAINS(s.err.message, "cannot be replaced");
    CHECK_INT(0, s.regroups);

    /* A minimum beyond the lease is refused at once. */
    s = (story){ 0 };
    run(&s, 2, &(gp_lease_request){ .workers_min = 1, .workers_max = 1 }, options, NULL);
    CHECK_STATUS(GP_EINVAL, s.status);
    CHECK_CONTAINS(s.err.message, "min-workers is 2");
}

static void stop_when_kept(story *s)
{
    if (strstr(s->noted, "adds no more workers") != NULL && s->stop_at == 0)
        s->stop_at = s->step + 100; /* no worker joins any more */
}

TEST(worker_that_always_fails_when_joining_is_excluded)
{
    static const char *const options[] = { "max-epochs=100000",           "mini-batch-size=50",
                                           "initial-learn-rate=0.02",     "max-restarts=2",
                                           "validation-frequency=100000", NULL };
    story s = { .act = stop_when_kept, .awaited = "adds no more workers" };

    run(&s, 2, NULL, options, "forward:3:kill@2");
    check_went_well(&s);
    CHECK_INT(0, s.unordered_step);
    CHECK_INT(1, s.world);
    CHECK_INT(3, s.summary.restarts);
    free(s.model.data);
}

/* A pool of three with a training on two of them, which the third joins. */
static const gp_lease_request two_of_three = { .workers_min = 2, .workers_max = 2 };

static void ask_for_three(story *s)
{
    gp_error e;

    if (s->step == 5 && ask(s, 3, &e) != GP_OK)
        GP_TEST_FAIL("%s", e.message);
    if (s->grown > 0 && s->stop_at == 0)
        s->stop_at = s->step + 20;
}

TEST(steps_continue_while_a_worker_prepares_or_fails_there)
{
    static const char *const options[] = { "max-epochs=100000", "mini-batch-size=50",
                                           "initial-learn-rate=0.02", "validation-frequency=100000", NULL };
    story s = { .act = ask_for_three, .awaited = "a third worker" };

    run(&s, 3, &two_of_three, options, NULL);
    check_went_well(&s);
    CHECK_INT(1, s.grown);
    CHECK(s.group_step > 5); /* the group did not wait for it */
    CHECK_INT(0, s.unordered_step);
    CHECK_INT(1, s.summary.resizes);
    free(s.model.data);

    /* The worker fails when it is ready; the replacement joins. */
    s = (story){ .act = ask_for_three, .awaited = "a third worker" };
    run(&s, 3, &two_of_three, options, "prepared:1:kill@1.1,prepared:1:kill@2.1,prepared:1:kill@3.1");
    check_went_well(&s);
    CHECK_INT(1, s.grown);
    CHECK_INT(0, s.shrunk);
    CHECK_INT(0, s.summary.restarts);
    CHECK_INT(0, s.unordered_step);
    free(s.model.data);
}

/* Kill one of the two members while the third worker hangs during preparation. */
static void kill_while_preparing(story *s)
{
    ask_for_three(s);
    if (s->step == 15)
        kill((pid_t)s->pool->grant.slots[1].pid, SIGKILL);
    if (s->step >= 15 && s->shrunk > 0 && s->stop_at == 0)
        s->stop_at = s->step + 20;
}

TEST(failure_and_end_do_not_wait_for_a_preparing_worker)
{
    static const char *const options[] = { "max-epochs=100000", "mini-batch-size=50",
                                           "initial-learn-rate=0.02", "validation-frequency=100000", NULL };
    story s = { .act = kill_while_preparing, .awaited = "one worker less" };

    run(&s, 3, &two_of_three, options, "prepared:1:hang@1.1,prepared:1:hang@2.1,prepared:1:hang@3.1");
    check_went_well(&s);
    CHECK_INT(1, s.shrunk);
    CHECK_INT(0, s.unordered_step);
    CHECK_INT(1, s.summary.restarts);
    free(s.model.data);
}

/* Write an array of uint8 like numpy.save(). */
static void array_write(const char *path, const char *shape, uint32_t count)
{
    char head[129], what[118];
    FILE *file = fopen(path, "w");

    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    snprintf(what, sizeof(what), "{'descr': '|u1', 'fortran_order': False, 'shape': (%s), }", shape);
    snprintf(head + 10, sizeof(head) - 10, "%-117s\n", what);
    if (file == NULL || fwrite(head, 128, 1, file) != 1)
        abort();
    for (uint32_t i = 0; i < count; i++)
        fputc((int)(i * 7 % 10), file);
    fclose(file);
}

/* Hide the data: the members have it open, the joining worker cannot find it. */
static void hide_data(story *s)
{
    if (s->step == 4 && rename(s->data, strcat(strcpy(s->noted, s->data), "-hidden")) != 0)
        GP_TEST_FAIL("cannot hide %s", s->data);
    ask_for_three(s);
    if (strstr(s->noted, "cannot join") != NULL && s->stop_at == 0)
        s->stop_at = s->step + 50;
}

TEST(joining_worker_without_the_data_is_excluded)
{
    static const char *const options[] = { "max-epochs=100000", "mini-batch-size=50",
                                           "initial-learn-rate=0.01", NULL };
    char folder[] = "/tmp/gpd-XXXXXX", path[2][60];
    story s = { .act = hide_data, .data = path[0], .awaited = "that it cannot join" };

    REQUIRE(leftovers_make(folder) != NULL);
    snprintf(path[0], sizeof(path[0]), "%s/x.npy", folder);
    snprintf(path[1], sizeof(path[1]), "%s/y.npy", folder);
    array_write(path[0], "500, 28, 28", 500 * 28 * 28);
    array_write(path[1], "500,", 500);
    run(&s, 3, &two_of_three, options, NULL);
    leftovers_clear(folder);
    check_went_well(&s);
    CHECK_CONTAINS(s.noted, " cannot join: ");
    CHECK_CONTAINS(s.noted, "the training continues with 2 workers");
    CHECK_INT(0, s.regroups);
    CHECK_INT(0, s.unordered_step);
    free(s.model.data);
}

static void ask_wrongly(story *s)
{
    gp_error e;

    if (s->step != 3)
        return;
    CHECK_STATUS(GP_ENODEV, ask(s, 5, &e));
    CHECK_CONTAINS(e.message, "5 workers requested, but the pool has 2");
    CHECK_STATUS(GP_EINVAL, ask(s, 1, &e));
    CHECK_CONTAINS(e.message, "min-workers");
    CHECK_STATUS(GP_EINVAL, ask(s, 0, &e));
    CHECK_STATUS(GP_ESTALE, gp_training_resize(s->other, s->pool->lease + 7, 0, 1, &e));
    CHECK_STATUS(GP_ESTALE, gp_training_resize(s->other, 0, 12, 1, &e));
    CHECK_CONTAINS(e.message, "job 12");
}

static void ask_of_fixed(story *s)
{
    gp_error e;

    if (s->step != 3)
        return;
    CHECK_STATUS(GP_EINVAL, ask(s, 1, &e));
    CHECK_CONTAINS(e.message, "cannot be resized");
}

TEST(impossible_number_of_workers_is_refused_without_effect)
{
    static const char *const least[] = { "max-epochs=1", "mini-batch-size=50", "min-workers=2", NULL };
    static const char *const fixed[] = { "max-epochs=1", "mini-batch-size=50", "max-restarts=0", NULL };
    story s = { .act = ask_wrongly };

    run(&s, 2, NULL, least, NULL);
    check_went_well(&s);
    CHECK_INT(0, s.regroups);
    free(s.model.data);
    s = (story){ .act = ask_of_fixed };
    run(&s, 2, NULL, fixed, NULL);
    check_went_well(&s);
    CHECK_INT(0, s.regroups);
    free(s.model.data);
}

/* Count the steps in the job's metrics. */
static int job_steps(void)
{
    slurp(in_w("metrics.jsonl"), out, sizeof(out));
    return count_in(out, "\"time\"");
}

static bool wait_for_steps(int count)
{
    AWAIT(job_steps() >= count, 5);
    return job_steps() >= count;
}

/* Return the last step in the metrics in `out`; splits `out` into lines. */
static int last_step(void)
{
    char *rest = NULL;
    int step = 0;

    for (char *line = strtok_r(out, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        gp_json *json = pools_json(line);

        if (gp_json_member(json, "time") != NULL)
            step = (int)gp_json_integer(gp_json_member(json, "step"), 0);
        gp_json_free(json);
    }
    return step;
}

/* Wait until the job's metrics, read into `out`, contain the text. */
static bool wait_for_text(const char *text)
{
    AWAIT((job_steps(), strstr(out, text) != NULL), 5);
    return strstr(out, text) != NULL;
}

TEST(command_resizes_a_background_job_and_its_metrics_show_it)
{
    exec_begin();
    RUN_CODE(0, "submit", "--", "train", "--network", "lenet", "--data", "digits:1500", "--epochs", "100000",
             "--batch-size", "1500", "--validation-frequency", "10000000", "--metrics", "metrics.jsonl");
    CHECK(wait_for_steps(5));
    RUN_CODE(1, "resize", "1", "3");
    CHECK_CONTAINS(err, "3 workers requested, but the pool has 2");
    RUN_CODE(0, "resize", "1", "1");
    CHECK_CONTAINS(out, "job 1 continues with 1 worker");
    CHECK(wait_for_steps(job_steps() + 5));
    RUN_CODE(0, "resize", "1", "2");
    RUN_CODE(2, "resize", "1");
    RUN_CODE(2, "resize", "lease:x", "2");
    CHECK(wait_for_text("\"workers_before\": 1, \"workers\": 2"));
    CHECK(wait_for_steps(job_steps() + 5));
    RUN_CODE(0, "cancel", "1");
    RUN_CODE(130, "wait", "1");
    int steps = job_steps();

    CHECK_INT(steps, last_step()); /* each step was reported once */
    job_steps();
    CHECK_CONTAINS(out, "\"workers_before\": 2, \"workers\": 1, \"worker_index\": [1]");
    CHECK_CONTAINS(out, "\"workers_before\": 1, \"workers\": 2, \"worker_index\": [1, 2]");
    CHECK_CONTAINS(out, "\"cause\": \"resized\"");
    RUN_CODE(1, "resize", "1", "2");
    CHECK_CONTAINS(err, "job 1 has no workers");
    pools_end();
}
