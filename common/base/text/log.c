/* Implement log.h: formatting, rate limiting, rotation and reading of logs. */
#include "common/base/text/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/text/log_line.h"
#include "common/base/text/throttle.h"

/* interval between periodic checks; message buffer size */
enum { TICK_MS = 1000, SENTENCE_BYTES = 1024 };

static char log_who[48]; /* "": a command, or a program that uses the library */
static gp_log_level log_level = GP_LOG_WARN;
static _Atomic int log_fd = STDERR_FILENO; /* see gp_log_use_fd() */
static const char *const level_names[] = { "debug", "info", "warn", "error" };

/* Protects log_throttle and log_file. Threads never wait for it when they log: a thread that cannot
 * take the lock skips rate limiting, and at worst writes one line too many. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static gp_throttle log_throttle;
static struct {
    char path[200], aside[204];
    uint64_t bytes_max; /* 0: the log is not a file to rotate */
    bool owner;         /* see gp_log_keep() */
} log_file;
static _Atomic int64_t tick_due_ms; /* when the next periodic checks are due */

/* ---- a line ---- */

/* Write an event in machine-readable form. */
static void line_write(gp_log_level level, const char *event, const gp_log_field *fields,
                       const char *sentence)
{
    gp_log_line line = { .bytes = 0 };
    char stamp[40];
    struct timespec now;
    struct tm utc;

    /* The wall clock is shown to people only; no decision depends on it. */
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t length = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);

    snprintf(stamp + length, sizeof(stamp) - length, ".%03dZ", (int)(now.tv_nsec / 1000000));
    gp_log_line_put(&line, "time", stamp, GP_LOG_VALUE_BYTES);
    gp_log_line_put(&line, "level", level_names[level], GP_LOG_VALUE_BYTES);
    gp_log_line_put(&line, "who", log_who, GP_LOG_VALUE_BYTES);
    gp_log_line_put_integer(&line, "pid", getpid());
    gp_log_line_put(&line, "event", event, GP_LOG_VALUE_BYTES);
    for (; fields != NULL && fields->key != NULL; fields++)
        if (fields->text != NULL)
            gp_log_line_put(&line, fields->key, fields->text, GP_LOG_VALUE_BYTES);
        else
            gp_log_line_put_integer(&line, fields->key, fields->number);
    gp_log_line_put(&line, "msg", sentence, sizeof(line.text));
    gp_log_line_end(&line);
    /* Ignore write errors: a full disk must not stop the process. */
    ssize_t ignored = write(atomic_load(&log_fd), line.text, line.bytes);

    (void)ignored;
}

/* Write an event for people: "warning: " and the message on one line, without control
 * characters. */
static void sentence_write(gp_log_level level, const char *sentence)
{
    static const char *const words[] = { "debug: ", "note: ", "warning: ", "error: " };
    char line[SENTENCE_BYTES + 16];
    int length = snprintf(line, sizeof(line), "%s%s", words[level], sentence);

    for (int i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = ' ';
    line[length] = '\n';
    ssize_t ignored = write(atomic_load(&log_fd), line, (size_t)length + 1);

    (void)ignored;
}

/* ---- periodic work ---- */

/* Log how many lines were suppressed in each ended window; all: in all windows. */
static void held_back_report(bool all)
{
    const char *event;
    uint64_t count;

    while (gp_throttle_next_ended(&log_throttle, gp_now_ms(), all, &event, &count)) {
        char sentence[160];

        snprintf(sentence, sizeof(sentence), "suppressed %" PRIu64 " more lines of event %s within %d s",
                 count, event, GP_THROTTLE_WINDOW_MS / 1000);
        if (log_who[0] != '\0')
            line_write(GP_LOG_WARN, "held-back",
                       GP_LOG_WITH({ "of", .text = event }, { "count", .number = (int64_t)count }), sentence);
        else
            sentence_write(GP_LOG_WARN, sentence);
    }
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* Rename a file that is too large, if this process is the owner, and switch to the new file. */
static void file_check(void)
{
    struct stat ours, named;
    int fd, used = atomic_load(&log_fd);
    bool there;

    if (log_file.bytes_max == 0 || fstat(used, &ours) != 0)
        return;
    there = stat(log_file.path, &named) == 0;
    if (there && same_file(&ours, &named) && log_file.owner && (uint64_t)ours.st_size > log_file.bytes_max)
        there = rename(log_file.path, log_file.aside) != 0;
    if (there && same_file(&ours, &named))
        return;
    fd = open(log_file.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        /* The old file stays in use; the next tick tries again. */
        return;
    /* Redirect standard output and standard error too if they were the same file. */
    for (int other = STDOUT_FILENO; other <= STDERR_FILENO; other++)
        if (fstat(other, &named) == 0 && same_file(&named, &ours))
            dup2(fd, other);
    if (used > STDERR_FILENO)
        dup3(fd, used, O_CLOEXEC);
    close(fd);
}

void gp_log_tick(void)
{
    int64_t now_ms = gp_now_ms();

    if (now_ms < atomic_load_explicit(&tick_due_ms, memory_order_relaxed) ||
        pthread_mutex_trylock(&log_lock) != 0)
        return;
    atomic_store_explicit(&tick_due_ms, now_ms + TICK_MS, memory_order_relaxed);
    held_back_report(false);
    file_check();
    pthread_mutex_unlock(&log_lock);
}

/* At exit, report all suppressed lines. */
static void log_finish(void)
{
    if (pthread_mutex_trylock(&log_lock) != 0)
        return;
    held_back_report(true);
    pthread_mutex_unlock(&log_lock);
}

/* ---- reading ---- */

/* Open a regular file owned by this user for reading; never follow a symbolic link.
 *   info   set to the file's status, or to size 0
 * -1: the file cannot be opened. */
static int piece_open(const char *path, struct stat *info)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

    if (fd >= 0 && (fstat(fd, info) != 0 || !S_ISREG(info->st_mode) || info->st_uid != geteuid())) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        *info = (struct stat){ .st_size = 0 };
    return fd;
}

size_t gp_log_read(const char *path, void *to, size_t bytes, uint64_t offset, uint64_t *size, uint64_t *file)
{
    char aside[PATH_MAX + sizeof(".1")]; /* the kernel refuses a path that is cut */
    struct stat info[2];
    int fds[2];
    size_t got = 0;

    snprintf(aside, sizeof(aside), "%s.1", path);

    /* Open the current file first. If it is renamed between the two calls, both descriptors refer
     * to the same file, and it is counted once. */
    fds[1] = piece_open(path, &info[1]);
    fds[0] = piece_open(aside, &info[0]);
    if (fds[0] >= 0 && fds[1] >= 0 && same_file(&info[0], &info[1]))
        info[0].st_size = 0;
    *size = fds[0] < 0 && fds[1] < 0 ? UINT64_MAX : (uint64_t)info[0].st_size + (uint64_t)info[1].st_size;
    if (file != NULL)
        *file = fds[1] >= 0 ? (uint64_t)info[1].st_ino : (uint64_t)info[0].st_ino;
    for (int i = 0; i < 2; i++) {
        uint64_t length = (uint64_t)info[i].st_size;

        if (offset < length && got < bytes) {
            size_t most = length - offset < bytes - got ? (size_t)(length - offset) : bytes - got;
            ssize_t done = pread(fds[i], (char *)to + got, most, (off_t)offset);

            got += done > 0 ? (size_t)done : 0;
            offset += done > 0 ? (uint64_t)done : 0;
        }
        offset = offset > length ? offset - length : 0;
    }
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return got;
}

/* ---- public functions ---- */

void gp_log_setup(const char *who, gp_log_level level)
{
    const char *wanted = getenv("GRADPOOL_LOG");

    if (log_who[0] == '\0')
        atexit(log_finish);
    snprintf(log_who, sizeof(log_who), "%s", who);
    log_level = level;
    for (int i = GP_LOG_DEBUG; wanted != NULL && i <= GP_LOG_ERROR; i++)
        if (strcmp(wanted, level_names[i]) == 0)
            log_level = (gp_log_level)i;
}

void gp_log_keep(const char *path, uint64_t bytes_max, bool owner)
{
    struct stat ours, named;

    if (strlen(path) >= sizeof(log_file.path) || fstat(STDERR_FILENO, &ours) != 0 ||
        stat(path, &named) != 0 || !same_file(&ours, &named))
        return;
    pthread_mutex_lock(&log_lock);
    snprintf(log_file.path, sizeof(log_file.path), "%s", path);
    snprintf(log_file.aside, sizeof(log_file.aside), "%s.1", log_file.path);
    log_file.bytes_max = bytes_max;
    log_file.owner = owner;
    pthread_mutex_unlock(&log_lock);
}

void gp_log_use_fd(int fd)
{
    pthread_mutex_lock(&log_lock);
    atomic_store(&log_fd, fd);
    pthread_mutex_unlock(&log_lock);
}

bool gp_log_is_shown(gp_log_level level)
{
    return level >= log_level;
}

void gp_log_event(gp_log_level level, const char *event, const gp_log_field *fields, const char *format, ...)
{
    char sentence[SENTENCE_BYTES];
    va_list arguments;
    bool reported = true;

    if (level < log_level)
        return;
    gp_log_tick();
    if (pthread_mutex_trylock(&log_lock) == 0) {
        reported = gp_throttle_pass(&log_throttle, event, gp_now_ms());
        pthread_mutex_unlock(&log_lock);
    }
    if (!reported)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    if (log_who[0] != '\0')
        line_write(level, event, fields, sentence);
    else
        sentence_write(level, sentence);
}
