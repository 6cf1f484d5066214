/* Answer ZAP requests from the key list (zap.h). */
#include "proto/channel/zap.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "proto/channel/zmq_context.h"

enum { FRAMES = 7, FRAME_BYTES_MAX = 255, MUTED_MAX = 64 };

typedef struct muting {
    char key[GP_KEY_TEXT];
    int64_t until_ms;
} muting;

struct gp_zap {
    char path[4096];
    void *socket;
    int end; /* eventfd that stops the thread */
    bool running;
    pthread_t thread;
    pthread_mutex_t lock; /* protects all members below */
    struct stat seen;     /* file status of the list when it was last read */
    bool read;
    gp_allow_list list;
    muting muted[MUTED_MAX];
    gp_zap_stats stats;
};

/* ---- key list ---- */

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Reload the list if the file changed. The status is taken before reading, so a change in between
 * is detected next time. */
static void list_refresh(gp_zap *zap)
{
    struct stat now = { .st_ino = 0 };
    gp_error err;

    if (lstat(zap->path, &now) != 0)
        now = (struct stat){ .st_ino = 0 };
    if (zap->read && is_same_file(&now, &zap->seen))
        return;
    zap->seen = now;
    zap->read = true;
    zap->stats.broken[0] = '\0';
    if (gp_allow_read(&zap->list, zap->path, &err) != GP_OK) {
        zap->list.count = 0;
        memcpy(zap->stats.broken, err.message, sizeof(zap->stats.broken));
        gp_log(GP_LOG_ERROR, "keys-unreadable", "all connections from other hosts are rejected: %s",
               err.message);
    }
    zap->stats.allowed = zap->list.count;
}

/* Return the list entry for a key; NULL: not on the list. */
static const gp_allowed *list_find(const gp_zap *zap, const char *key)
{
    for (uint32_t i = 0; i < zap->list.count; i++)
        if (memcmp(zap->list.entries[i].key, key, GP_KEY_TEXT) == 0)
            return &zap->list.entries[i];
    return NULL;
}

static bool is_muted(const gp_zap *zap, const char *key)
{
    int64_t now = gp_now_ms();

    for (int i = 0; i < MUTED_MAX; i++)
        if (zap->muted[i].until_ms > now && strcmp(zap->muted[i].key, key) == 0)
            return true;
    return false;
}

void gp_zap_mute(gp_zap *zap, const char *key, int ms)
{
    pthread_mutex_lock(&zap->lock);

    /* reuse the entry of this key, or else the one that expires first */
    muting *place = &zap->muted[0];

    for (int i = 1; i < MUTED_MAX && strcmp(place->key, key) != 0; i++)
        if (strcmp(zap->muted[i].key, key) == 0 || zap->muted[i].until_ms < place->until_ms)
            place = &zap->muted[i];
    snprintf(place->key, sizeof(place->key), "%s", key);
    place->until_ms = gp_now_ms() + ms;
    pthread_mutex_unlock(&zap->lock);
}

bool gp_zap_find(gp_zap *zap, const char *key, gp_allowed *out)
{
    pthread_mutex_lock(&zap->lock);
    list_refresh(zap);
    const gp_allowed *found =
        strlen(key) == GP_KEY_TEXT - 1 && !is_muted(zap, key) ? list_find(zap, key) : NULL;

    if (found != NULL)
        *out = *found;
    pthread_mutex_unlock(&zap->lock);
    return found != NULL;
}

gp_zap_stats gp_zap_get_stats(gp_zap *zap)
{
    pthread_mutex_lock(&zap->lock);
    list_refresh(zap);
    gp_zap_stats stats = zap->stats;

    pthread_mutex_unlock(&zap->lock);
    return stats;
}

void gp_zap_uncount_refused(gp_zap *zap)
{
    pthread_mutex_lock(&zap->lock);
    zap->stats.refused -= zap->stats.refused > 0;
    pthread_mutex_unlock(&zap->lock);
}

/* ---- requests ---- */

/* A ZAP request. */
typedef struct question {
    uint8_t frames[FRAMES][FRAME_BYTES_MAX + 1]; /* NUL-terminated */
    size_t bytes[FRAMES];
    unsigned count; /* FRAMES + 1: too many frames, or one too long */
} question;

/* Read one whole request; drop what does not fit. Return false if no request is pending. */
static bool question_read(void *socket, question *out)
{
    bool more = true;

    out->count = 0;
    while (more) {
        zmq_msg_t frame;

        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&frame);
            if (errno == EINTR)
                continue;
            return false;
        }
        size_t bytes = zmq_msg_size(&frame);

        if (out->count >= FRAMES || bytes > FRAME_BYTES_MAX) {
            out->count = FRAMES + 1;
        } else {
            memcpy(out->frames[out->count], zmq_msg_data(&frame), bytes);
            out->frames[out->count][bytes] = '\0';
            out->bytes[out->count++] = bytes;
        }
        more = zmq_msg_more(&frame);
        zmq_msg_close(&frame);
    }
    return true;
}

static bool frame_is(const question *asked, unsigned i, const char *text)
{
    return asked->bytes[i] == strlen(text) && memcmp(asked->frames[i], text, asked->bytes[i]) == 0;
}

/* Decide on a request and set `user` to the key (Z85).
 *
 * "200": admitted. "300": muted, retry later. "400": refused or malformed. */
static const char *judge(gp_zap *zap, const question *asked, char user[GP_KEY_TEXT])
{
    const char *verdict = "400";

    user[0] = '\0';
    if (asked->count != FRAMES || !frame_is(asked, 0, "1.0") || !frame_is(asked, 2, GP_ZAP_DOMAIN) ||
        !frame_is(asked, 5, "CURVE") || asked->bytes[6] != 32 ||
        zmq_z85_encode(user, asked->frames[6], 32) == NULL)
        user[0] = '\0';
    pthread_mutex_lock(&zap->lock);
    list_refresh(zap);
    if (user[0] != '\0' && is_muted(zap, user)) {
        verdict = "300";
        zap->stats.muted++;
    } else if (user[0] != '\0' && list_find(zap, user) != NULL) {
        verdict = "200";
        zap->stats.admitted++;
    } else {
        zap->stats.refused++;
    }
    pthread_mutex_unlock(&zap->lock);
    if (verdict[0] != '2')
        user[0] = '\0';
    return verdict;
}

/* Thread: answer requests until `end` is signalled. */
static void *serve(void *context)
{
    gp_zap *zap = context;
    static _Thread_local question asked;

    for (;;) {
        zmq_pollitem_t items[] = { { .socket = zap->socket, .events = ZMQ_POLLIN },
                                   { .fd = zap->end, .events = ZMQ_POLLIN } };

        if (zmq_poll(items, 2, -1) < 0 && errno != EINTR)
            break;
        if (items[1].revents != 0)
            break;
        while (question_read(zap->socket, &asked)) {
            /* Send the ZAP reply. */
            char user[GP_KEY_TEXT];
            const char *verdict = judge(zap, &asked, user);
            const char *text = verdict[0] == '2'   ? "OK"
                               : verdict[0] == '3' ? "later"
                                                   : "this key is not in the list";
            bool known = asked.count >= 2 && asked.count <= FRAMES;

            zmq_send(zap->socket, "1.0", 3, ZMQ_SNDMORE);
            zmq_send(zap->socket, known ? asked.frames[1] : NULL, known ? asked.bytes[1] : 0, ZMQ_SNDMORE);
            zmq_send(zap->socket, verdict, 3, ZMQ_SNDMORE);
            zmq_send(zap->socket, text, strlen(text), ZMQ_SNDMORE);
            zmq_send(zap->socket, user, strlen(user), ZMQ_SNDMORE);
            zmq_send(zap->socket, NULL, 0, 0);
        }
    }
    return NULL;
}

/* ---- opening ---- */

/* Bind the ZAP endpoint. GP_EBUSY: this process already has a gp_zap. */
static gp_status zap_bind(gp_zap *zap, gp_error *err)
{
    int none = 0;
    void *context = gp_zmq_acquire(err);

    if (context == NULL)
        return GP_ELIMIT;
    zap->socket = zmq_socket(context, ZMQ_REP);
    if (zap->socket == NULL) {
        gp_zmq_release();
        return gp_fail(err, GP_ELIMIT, "cannot create a ZeroMQ socket: %s", zmq_strerror(errno));
    }
    zmq_setsockopt(zap->socket, ZMQ_LINGER, &none, sizeof(none));
    if (zmq_bind(zap->socket, "inproc://zeromq.zap.01") != 0)
        return gp_fail(err, GP_EBUSY, "this process has a key list already: %s", zmq_strerror(errno));
    return GP_OK;
}

gp_status gp_zap_open(gp_zap **out, const char *list, gp_error *err)
{
    gp_status status = gp_curve_check(err);
    gp_zap *zap = status == GP_OK ? gp_calloc(1, sizeof(*zap)) : NULL;

    if (status != GP_OK)
        return status;
    if (zap == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a key list");
    pthread_mutex_init(&zap->lock, NULL);
    zap->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (zap->end < 0)
        status = gp_fail_errno(err, GP_ELIMIT, "cannot create an eventfd for a key list");
    else if ((size_t)snprintf(zap->path, sizeof(zap->path), "%s", list) >= sizeof(zap->path))
        status = gp_fail(err, GP_ELIMIT, "the path %.100s... is too long; use a shorter one", list);
    if (status == GP_OK)
        status = zap_bind(zap, err);
    if (status == GP_OK) {
        list_refresh(zap);
        int problem = pthread_create(&zap->thread, NULL, serve, zap);

        zap->running = problem == 0;
        errno = problem;
        if (problem != 0)
            status = gp_fail_errno(err, GP_ELIMIT, "cannot start the thread for a key list");
    }
    if (status != GP_OK) {
        gp_zap_close(zap);
        return status;
    }
    *out = zap;
    return GP_OK;
}

void gp_zap_close(gp_zap *zap)
{
    if (zap == NULL)
        return;
    if (zap->running) {
        uint64_t one = 1;

        while (write(zap->end, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
        pthread_join(zap->thread, NULL);
    }
    if (zap->socket != NULL) {
        zmq_close(zap->socket);
        gp_zmq_release();
    }
    if (zap->end >= 0)
        close(zap->end);
    pthread_mutex_destroy(&zap->lock);
    gp_free(zap);
}
