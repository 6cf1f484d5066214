/* saver.c -- background thread that writes checkpoints.
 *
 *   compute: save() copies the state while IDLE ---> WRITING: a thread writes the copy ---> IDLE */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/process.h"
#include "worker/train/checkpoint.h"

struct gp_saver {
    char directory[1024];
    const gp_checkpoint_frame *frame;
    gp_checkpoint copy; /* used by the thread while `writing` is set */
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    bool writing, stopping, event, failed;
    char text[480];
};

static void *saver_main(void *argument)
{
    gp_saver *saver = argument;
    char text[480];
    int64_t begin_ns;
    gp_error err;
    bool failed;

    pthread_mutex_lock(&saver->lock);
    for (;;) {
        while (!saver->writing && !saver->stopping)
            pthread_cond_wait(&saver->changed, &saver->lock);
        if (!saver->writing)
            break;
        pthread_mutex_unlock(&saver->lock);
        begin_ns = gp_now_ns();
        failed = gp_checkpoint_write(saver->directory, saver->frame, &saver->copy, &err) != GP_OK;
        if (failed)
            snprintf(text, sizeof(text),
                     "cannot write the checkpoint of step %llu: %.400s; the training continues",
                     (unsigned long long)saver->copy.progress.step, err.message);
        else
            snprintf(text, sizeof(text), "wrote the checkpoint of step %llu to %.380s in %.0f ms",
                     (unsigned long long)saver->copy.progress.step, saver->directory,
                     (double)(gp_now_ns() - begin_ns) * 1e-6);
        pthread_mutex_lock(&saver->lock);
        memcpy(saver->text, text, sizeof(text));
        saver->failed = failed;
        saver->event = true;
        saver->writing = false;
        pthread_cond_broadcast(&saver->changed);
    }
    pthread_mutex_unlock(&saver->lock);
    return NULL;
}

gp_status gp_saver_new(gp_saver **out, const char *directory, const gp_checkpoint_frame *frame,
                       const gp_checkpoint *like, gp_error *err)
{
    gp_saver *saver = gp_calloc(1, sizeof(*saver));
    int problem;
    gp_status status = GP_OK;

    if (saver == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to write checkpoints");
    pthread_mutex_init(&saver->lock, NULL);
    pthread_cond_init(&saver->changed, NULL);
    snprintf(saver->directory, sizeof(saver->directory), "%s", directory);
    saver->frame = frame;
    if (!gp_checkpoint_take_blobs(&saver->copy, like, frame->graph->blob_count)) {
        status = gp_fail(err, GP_ENOMEM,
                         "no memory for a copy of the state to write checkpoints from; drop checkpoint-path");
    } else {
        problem = gp_thread_start(&saver->thread, "gp-saver", 0, saver_main, saver);
        saver->started = problem == 0;
        if (!saver->started)
            status =
                gp_fail(err, GP_ELIMIT, "cannot start the checkpoint thread: %s", strerrordesc_np(problem));
    }
    if (status != GP_OK) {
        gp_saver_free(saver);
        return status;
    }
    *out = saver;
    return GP_OK;
}

void gp_saver_free(gp_saver *saver)
{
    if (saver == NULL)
        return;
    if (saver->started) {
        pthread_mutex_lock(&saver->lock);
        saver->stopping = true;
        pthread_cond_broadcast(&saver->changed);
        pthread_mutex_unlock(&saver->lock);
        pthread_join(saver->thread, NULL);
    }
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->lock);
    gp_checkpoint_free_blobs(&saver->copy);
    gp_free(saver);
}

bool gp_saver_save(gp_saver *saver, const gp_checkpoint *checkpoint)
{
    bool busy;

    pthread_mutex_lock(&saver->lock);
    busy = saver->writing;
    pthread_mutex_unlock(&saver->lock);
    if (busy)
        return false;
    gp_checkpoint_copy(&saver->copy, checkpoint, saver->frame->graph->blob_count);
    pthread_mutex_lock(&saver->lock);
    saver->writing = true;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
    return true;
}

void gp_saver_wait(gp_saver *saver)
{
    pthread_mutex_lock(&saver->lock);
    while (saver->writing)
        pthread_cond_wait(&saver->changed, &saver->lock);
    pthread_mutex_unlock(&saver->lock);
}

bool gp_saver_events(gp_saver *saver, char text[480], bool *failed)
{
    bool event;

    pthread_mutex_lock(&saver->lock);
    event = saver->event;
    if (event) {
        memcpy(text, saver->text, sizeof(saver->text));
        *failed = saver->failed;
    }
    saver->event = false;
    pthread_mutex_unlock(&saver->lock);
    return event;
}
