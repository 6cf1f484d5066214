#include "tests/fake/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "worker/predict/predictor.h"
#include "worker/train/trainer.h"

/* ---- the backend: opens and closes ---- */

struct gp_backend {
    uint32_t threads;
};

static gp_status backend_open(gp_backend **out, const gp_backend_options *options, gp_error *err)
{
    gp_backend *backend = gp_calloc(1, sizeof(*backend));

    if (backend == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory");
    backend->threads = options->threads;
    *out = backend;
    return GP_OK;
}

static void backend_close(gp_backend *backend)
{
    gp_free(backend);
}

const gp_backend_ops fake_backend = { .name = "fake", .open = backend_open, .close = backend_close };

/* ---- the trainer ---- */

enum {
    MEET_WORDS = 32
}; /* bytes of a published memfd: a greeting, then one mark for each rank that has read it */

struct gp_trainer {
    gp_train_control *control;
    uint64_t steps;
    bool deaf, flood;
    float weights[4];
};

static bool option_has(const gp_trainer_setup *setup, const char *word)
{
    return memmem(setup->options, setup->options_bytes, word, strlen(word)) != NULL;
}

static gp_status meet_publish(const gp_comm_rendezvous *group, gp_error *err)
{
    int fd = memfd_create("fake", MFD_CLOEXEC);
    gp_status status;

    if (fd < 0 || dprintf(fd, "worker %u", group->members[group->rank].index) < 0)
        return gp_fail_errno(err, GP_EIO, "memfd");
    status = group->ops->publish(group->context, GP_COMM_WHAT_ARENA, fd, err);
    close(fd);
    return status;
}

/* Wait for the memfd of that rank. */
static gp_status meet_fetch(const gp_trainer_setup *setup, uint32_t rank, int *fd, gp_error *err)
{
    const gp_comm_rendezvous *group = setup->group;

    for (;;) {
        gp_status status = group->ops->fetch(group->context, rank, GP_COMM_WHAT_ARENA, 20, fd, err);

        if (status != GP_ETIMEDOUT)
            return status;
        if (atomic_load(&setup->control->stop) == 2)
            return gp_fail(err, GP_ECANCELED, "canceled while the group was formed");
    }
}

/* Read the greeting of that rank and mark it as read. */
static gp_status meet_read(const gp_trainer_setup *setup, uint32_t rank, gp_error *err)
{
    char expected[MEET_WORDS], got[MEET_WORDS] = "";
    int fd;
    gp_status status = meet_fetch(setup, rank, &fd, err);

    if (status != GP_OK)
        return status;
    snprintf(expected, sizeof(expected), "worker %u", setup->group->members[rank].index);
    if (pread(fd, got, sizeof(got) - 1, 0) < 0 || strcmp(expected, got) != 0)
        status =
            gp_fail(err, GP_ECORRUPT, "fetched \"%s\" from rank %u, expected \"%s\"", got, rank, expected);
    else if (pwrite(fd, "x", 1, MEET_WORDS + setup->group->rank) != 1)
        status = gp_fail_errno(err, GP_EIO, "memfd");
    close(fd);
    return status;
}

/* Wait until all ranks have read this greeting. A finished training withdraws its memfd; a real
 * trainer cannot finish before its peers because of the gradient sums. */
static gp_status meet_await_readers(const gp_trainer_setup *setup, gp_error *err)
{
    uint32_t world = setup->group->world, readers = 0;
    char marks[GP_MEMBERS_MAX];
    int fd;
    gp_status status = meet_fetch(setup, setup->group->rank, &fd, err);

    if (status != GP_OK)
        return status;
    while (readers < world && status == GP_OK) {
        ssize_t bytes = pread(fd, marks, world, MEET_WORDS);

        readers = 0;
        for (ssize_t i = 0; i < bytes; i++)
            readers += marks[i] == 'x';
        if (atomic_load(&setup->control->stop) == 2)
            status = gp_fail(err, GP_ECANCELED, "canceled while the group was formed");
        usleep(200);
    }
    close(fd);
    return status;
}

static gp_status meet(const gp_trainer_setup *setup, gp_error *err)
{
    gp_status status = meet_publish(setup->group, err);

    for (uint32_t rank = 0; rank < setup->group->world && status == GP_OK; rank++)
        status = meet_read(setup, rank, err);
    return status == GP_OK ? meet_await_readers(setup, err) : status;
}

gp_status gp_trainer_new(gp_trainer **out, gp_train_ready *ready, const gp_trainer_setup *setup,
                         gp_error *err)
{
    const char *steps = memmem(setup->options, setup->options_bytes, "\"steps\":", 8);
    gp_trainer *trainer;
    gp_status status = GP_OK;

    if (option_has(setup, "refuse"))
        return gp_fail(err, GP_EINVAL, "no data at %s", setup->begin->data);
    if (option_has(setup, "meet"))
        status = meet(setup, err);
    if (status != GP_OK)
        return status;
    trainer = gp_calloc(1, sizeof(*trainer));
    if (trainer == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory");
    trainer->control = setup->control;
    trainer->steps = steps == NULL ? 0 : strtoull(steps + 8, NULL, 10);
    trainer->deaf = option_has(setup, "deaf");
    trainer->flood = option_has(setup, "flood");
    *ready = (gp_train_ready){
        .rank = setup->group->rank,
        .world = setup->group->world,
        .samples = 100,
        .steps_per_epoch = 10,
        .batch = 10,
        .batch_rank = 10,
        .parameters = setup->weights_count,
        .classes = 3,
    };
    *out = trainer;
    return GP_OK;
}

void gp_trainer_free(gp_trainer *trainer)
{
    gp_free(trainer);
}

static void pause_1ms(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

gp_status gp_trainer_run(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done)
{
    uint64_t step = 0;
    uint32_t stop = 0;

    while (trainer->deaf)
        pause_1ms();
    while (step < trainer->steps && (stop = atomic_load(&trainer->control->stop)) == 0) {
        gp_train_record record = { .step = ++step, .epoch = 1, .samples = 10, .loss = 1.0 / (double)step };
        gp_train_validation validation = { .step = step, .epoch = 1, .accuracy = 0.5, .count = 10 };

        if (!trainer->flood)
            pause_1ms();
        gp_fault_point("exchange");
        atomic_fetch_add(&trainer->control->progress, 1);
        atomic_store(&trainer->control->step, step);
        sink->record(sink->context, &record);
        if (step % 10 == 0)
            sink->validation(sink->context, &validation);
    }
    trainer->weights[0] = 1;
    trainer->weights[1] = 2;
    trainer->weights[2] = 3;
    trainer->weights[3] = (float)step;
    *done = (gp_train_done){ .step = step, .epoch = 1, .stop_reason = GP_STOP_COMPLETED };
    if (stop != 0)
        done->stop_reason = GP_STOP_STOPPED;
    if (stop == 2) {
        done->status = GP_ECANCELED;
        snprintf(done->message, sizeof(done->message), "canceled");
    }
    return (gp_status)done->status;
}

const float *gp_trainer_weights(const gp_trainer *trainer, size_t *count)
{
    *count = 4;
    return trainer->weights;
}

const char *gp_trainer_classes(const gp_trainer *trainer)
{
    (void)trainer;
    return "[\"a\",\"b\",\"c\"]";
}

/* ---- the predictor: sample i has scores i, i + 0.25, i + 0.5 and label i % 3 ---- */

struct gp_predictor {
    bool exhausts; /* the reply to predict_begin runs out of memory */
    float *scores;
    int32_t *labels;
};

gp_status gp_predictor_new(gp_predictor **out, gp_predict_ready *ready, const gp_predictor_setup *setup,
                           gp_error *err)
{
    gp_predictor *predictor;

    if (setup->weights_count != 4)
        return gp_fail(err, GP_EINVAL, "%zu weights; expected 4", setup->weights_count);
    predictor = gp_calloc(1, sizeof(*predictor));
    if (predictor == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory");
    predictor->exhausts = strcmp(setup->begin->data, "/exhausts") == 0;
    *ready = (gp_predict_ready){ .samples = 100, .classes = 3, .has_labels = true, .micro_batch = 1 };
    *out = predictor;
    return GP_OK;
}

void gp_predictor_free(gp_predictor *predictor)
{
    if (predictor == NULL)
        return;
    gp_free(predictor->scores);
    gp_free(predictor->labels);
    gp_free(predictor);
}

char *gp_predictor_note(const gp_predictor *predictor, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", predictor->exhausts ? "1 image was left out" : "");
    if (predictor->exhausts)
        gp_alloc_fail_nth(1);
    return text;
}

gp_status gp_predictor_names(const gp_predictor *predictor, uint64_t first, uint32_t count,
                             const uint8_t *only, gp_buffer *names, gp_error *err)
{
    gp_status status = GP_OK;

    (void)predictor;
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        if (only != NULL && only[i] == 0)
            continue;
        status = gp_buffer_printf(names, err, "sample-%u", (unsigned)(first + i));
        if (status == GP_OK)
            status = gp_buffer_append(names, "", 1, err);
    }
    return status;
}

gp_status gp_predictor_part(gp_predictor *predictor, const gp_predictor_ask *ask, gp_predicted *out,
                            gp_error *err)
{
    const uint64_t first = ask->first;
    const uint32_t count = ask->count;

    if (first + count > 100)
        return gp_fail(err, GP_EINVAL, "samples to %llu; there are 100", (unsigned long long)(first + count));
    gp_free(predictor->scores);
    gp_free(predictor->labels);
    predictor->scores = gp_calloc(count, 3 * sizeof(float));
    predictor->labels = gp_calloc(count, sizeof(int32_t));
    if (predictor->scores == NULL || predictor->labels == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory");
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < 3; j++)
            predictor->scores[3 * i + j] = (float)(first + i) + 0.25F * (float)j;
        predictor->labels[i] = (int32_t)((first + i) % 3);
    }
    *out = (gp_predicted){ .part = { .first = first, .count = count, .weight = count },
                           .scores = predictor->scores,
                           .scores_bytes = count * 3 * sizeof(float),
                           .labels = predictor->labels,
                           .named = true };
    return GP_OK;
}

/* Prepare no state for another group: fake trainings end with a worker failure. */
gp_status gp_trainer_prepare(gp_carry_over **out, const gp_trainer_setup *setup, uint64_t lease,
                             gp_error *err)
{
    (void)setup, (void)lease, (void)err;
    *out = NULL;
    return GP_OK;
}

gp_carry_over *gp_trainer_hold(gp_trainer *trainer, uint64_t lease)
{
    (void)trainer, (void)lease;
    return NULL;
}

uint64_t gp_carry_over_lease(const gp_carry_over *held)
{
    (void)held;
    return 0;
}

void gp_carry_over_free(gp_carry_over *held)
{
    (void)held;
}
