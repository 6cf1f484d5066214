/* Download one file at a time to FILE.part, verify size and checksum, then rename it.
 *
 * Only the checksum decides. A wrong length announced by the server is ignored if the bytes are
 * right. A part left by an earlier call is resumed, and then verified like any other download. */
#include "common/data/download/get.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <md5.h>
#include <sha2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/cached.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/base/text/spell.h"
#include "common/data/s3/curl.h"

enum { URL_MAX = 2048, REDIRECTS_MAX = 5, TRIES_MAX = 100 };
#define UNKNOWN_BYTES_MAX ((uint64_t)16 << 30) /* limit for files whose size is unknown */

static const char data_mirror[] = "GRADPOOL_DATA_URL";

/* From github.com/zalandoresearch/fashion-mnist, "Get the Data". */
static const gp_get_file fashion_files[] = {
    { "train-images-idx3-ubyte.gz", 26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d" },
    { "train-labels-idx1-ubyte.gz", 29515, "25c81989df183df01b3e8a0aad5dffbe" },
    { "t10k-images-idx3-ubyte.gz", 4422102, "bef4ecab320f06d8554ea6380940ec79" },
    { "t10k-labels-idx1-ubyte.gz", 5148, "bb300cfdad3c16e7a12a480ee83cd310" },
};

const gp_get_set gp_get_sets[] = {
    { "fashion-mnist", "70,000 grey images of clothes, 28x28, 10 classes (Zalando SE, MIT licence)",
      "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", fashion_files,
      sizeof(fashion_files) / sizeof(fashion_files[0]), data_mirror },
    { 0 },
};

/* State of one file transfer. */
typedef struct fetch {
    const gp_curl *curl;
    const gp_get_file *file;
    gp_get_options options; /* defaults filled in */
    char url[URL_MAX], path[PATH_MAX], part[PATH_MAX];
    int fd;         /* FILE.part, locked; -1: not open */
    uint64_t bytes; /* bytes in FILE.part */
    bool resumed;   /* FILE.part contains bytes from an earlier transfer */
    bool too_long, canceled;
    int write_errno; /* errno of a failed write in the callback; 0: none */
    char detail[CURL_ERROR_SIZE];
    const char *mirror; /* mirror variable to suggest in error messages; NULL: none */
} fetch;

/* Format advice for a failed or mismatched download. */
static const char *hint(const fetch *job, bool network, char text[128])
{
    snprintf(text, 128, "%s%s%s", network ? "check the network connection" : "", network ? ", or " : "",
             job->mirror != NULL ? "set a mirror with " : "use another URL");
    if (job->mirror != NULL)
        strcat(text, job->mirror);
    return text;
}

static uint64_t bytes_most(const fetch *job)
{
    return job->file->bytes != 0 ? job->file->bytes : UNKNOWN_BYTES_MAX;
}

/* Append received bytes to FILE.part (curl write callback). Return 0 to abort the transfer: too
 * many bytes, or a write error. */
static size_t on_bytes(char *data, size_t size, size_t count, void *context)
{
    fetch *job = context;
    size_t bytes = size * count;

    if (bytes > bytes_most(job) - job->bytes) {
        job->too_long = true;
        return 0;
    }
    if (lseek(job->fd, (off_t)job->bytes, SEEK_SET) < 0 || !gp_write_all(job->fd, data, bytes)) {
        job->write_errno = errno;
        return 0;
    }
    job->bytes += bytes;
    return bytes;
}

static int on_progress(void *context, curl_off_t total, curl_off_t now, curl_off_t upload_total,
                       curl_off_t upload_now)
{
    fetch *job = context;

    (void)total;
    (void)now;
    (void)upload_total;
    (void)upload_now;
    if (job->options.progress == NULL ||
        job->options.progress(job->options.context, job->file->name, job->bytes, job->file->bytes) == 0)
        return 0;
    job->canceled = true;
    return 1;
}

static const char *sum_name(bool md5)
{
    return md5 ? "MD5" : "SHA-256";
}

static bool sum_is_md5(const char *sum)
{
    return sum != NULL && strlen(sum) + 1 == MD5_DIGEST_STRING_LENGTH;
}

/* Compute the checksum of a file, MD5 or SHA-256 depending on the format of `like`. */
static gp_status file_sum(char text[GP_GET_SUM_BYTES], const char *like, const char *path, gp_error *err)
{
    return (sum_is_md5(like) ? MD5File(path, text) : SHA256File(path, text)) != NULL
               ? GP_OK
               : gp_fail_errno(err, GP_EIO, "cannot read %s", path);
}

gp_status gp_get_sum(char sum[GP_GET_SUM_BYTES], const char *path, gp_error *err)
{
    return file_sum(sum, NULL, path, err);
}

/* Open and lock FILE.part. Keep bytes from an earlier transfer if they can be verified. */
static gp_status part_open(fetch *job, gp_error *err)
{
    struct stat ours, named;

    job->fd = open(job->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (job->fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create %s", job->part);
    gp_status locked = gp_file_lock(job->fd);

    if (locked == GP_EIO) {
        gp_fail_errno(err, GP_EIO, "cannot lock %s", job->part);
        close(job->fd);
        job->fd = -1;
        return GP_EIO;
    }
    /* The previous lock holder may have renamed the file to the final name. */
    if (locked != GP_OK || fstat(job->fd, &ours) != 0 || stat(job->part, &named) != 0 ||
        ours.st_ino != named.st_ino) {
        close(job->fd);
        job->fd = -1;
        return gp_fail(err, GP_EBUSY, "another process is downloading %s; wait for it to finish", job->path);
    }
    /* Without a checksum, a mix of two file versions would go unnoticed, so start again. */
    if (job->file->sum != NULL && (uint64_t)ours.st_size <= bytes_most(job)) {
        job->bytes = (uint64_t)ours.st_size;
        job->resumed = job->bytes > 0;
    } else if (ftruncate(job->fd, 0) != 0) {
        return gp_fail_errno(err, GP_EIO, "cannot truncate %s", job->part);
    }
    return GP_OK;
}

static gp_status part_restart(fetch *job, gp_error *err)
{
    job->bytes = 0;
    job->resumed = false;
    return ftruncate(job->fd, 0) == 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot truncate %s", job->part);
}

static void handle_setup(CURL *handle, fetch *job)
{
    const gp_curl *curl = job->curl;

    job->detail[0] = '\0';
    curl->easy_setopt(handle, CURLOPT_URL, job->url);
    curl->easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl->easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl->easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
    curl->easy_setopt(handle, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    curl->easy_setopt(handle, CURLOPT_FAILONERROR, 1L);
    curl->easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(handle, CURLOPT_USERAGENT, "gradpool");
    curl->easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, (long)job->options.connect_s);
    curl->easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl->easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, (long)job->options.stall_s);
    curl->easy_setopt(handle, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)job->bytes);
    curl->easy_setopt(handle, CURLOPT_ERRORBUFFER, job->detail);
    curl->easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_bytes);
    curl->easy_setopt(handle, CURLOPT_WRITEDATA, job);
    curl->easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl->easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl->easy_setopt(handle, CURLOPT_XFERINFODATA, job);
}

/* Verify a complete download. *again: a restart may help. */
static gp_status part_judge(fetch *job, bool *again, gp_error *err)
{
    char sum[GP_GET_SUM_BYTES], text[128];
    const char *published = job->file->sum;
    gp_status status = published == NULL ? GP_OK : file_sum(sum, published, job->part, err);

    if (status != GP_OK || published == NULL || strcmp(sum, published) == 0)
        return status;
    *again = job->resumed; /* the two parts may come from different versions */
    status = part_restart(job, err);
    return status != GP_OK
               ? status
               : gp_fail(err, GP_ECORRUPT,
                         "checksum mismatch of %s: %s %s, published %s; the file on the server is damaged or "
                         "another one; %s",
                         job->url, sum_name(sum_is_md5(published)), sum, published, hint(job, false, text));
}

/* Run one transfer. *again: it failed, but a retry may succeed. */
static gp_status transfer(fetch *job, bool *again, gp_error *err)
{
    CURL *handle;
    CURLcode code = CURLE_OK;
    char text[128];
    long http = 0;

    *again = false;
    if (job->bytes < bytes_most(job)) {
        job->resumed = job->bytes > 0;
        handle = job->curl->easy_init();
        if (handle == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the download of %s", job->url);
        handle_setup(handle, job);
        code = job->curl->easy_perform(handle);
        job->curl->easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &http);
        job->curl->easy_cleanup(handle);
    }
    if (job->canceled)
        return gp_fail(err, GP_ECANCELED, "the download of %s was canceled", job->url);
    if (job->write_errno != 0) {
        errno = job->write_errno;
        return gp_fail_errno(err, GP_EIO, "cannot write to %s after %llu bytes", job->part,
                             (unsigned long long)job->bytes);
    }
    if (job->too_long)
        return gp_fail(err, GP_ECORRUPT, "%s has more than the %s %llu bytes and must be another file; %s",
                       job->url, job->file->bytes != 0 ? "published" : "supported",
                       (unsigned long long)bytes_most(job), hint(job, false, text));
    if (job->file->bytes == 0 ? code == CURLE_OK : job->bytes == job->file->bytes)
        return part_judge(job, again, err);
    /* 416: the existing part is longer than the file. CURLE_OK: the file ends too early. */
    bool restart = code == CURLE_RANGE_ERROR || http == 416;

    *again = restart || code == CURLE_OK || gp_curl_is_transient(code, http);
    if (restart && part_restart(job, err) != GP_OK)
        return GP_EIO;
    if (code == CURLE_OK || code == CURLE_PARTIAL_FILE)
        return gp_fail(err, GP_EIO, "%s is truncated: %llu of %llu bytes; %s", job->url,
                       (unsigned long long)job->bytes, (unsigned long long)job->file->bytes,
                       hint(job, true, text));
    return gp_fail(err, GP_EIO, "cannot download %s: %s; %s", job->url,
                   job->detail[0] != '\0' ? job->detail : job->curl->easy_strerror(code),
                   hint(job, true, text));
}

/* Return whether FILE.part of a failed download stays for the next call. Only a file with a
 * checksum can be resumed. A complete part is removed, because it is wrong or cannot be read. After
 * a write error the part is removed to free disk space. */
static bool part_is_kept(const fetch *job, gp_status status)
{
    return job->options.keep_part && job->file->sum != NULL && status != GP_ECORRUPT && job->bytes > 0 &&
           job->bytes < bytes_most(job) && job->write_errno == 0;
}

/* Download a file unless it already exists. Retry with exponential backoff. */
static gp_status file_fetch(fetch *job, gp_error *err)
{
    uint64_t pause = job->options.wait_ms;
    const char *published = job->file->sum;
    char sum[GP_GET_SUM_BYTES];
    bool again = true;
    gp_status status = GP_OK;

    if (access(job->path, F_OK) == 0) {
        status = published == NULL ? GP_OK : file_sum(sum, published, job->path, err);
        if (status != GP_OK || published == NULL || strcmp(sum, published) == 0)
            return status;
        return gp_fail(err, GP_ESTATE,
                       "%s exists but is not the published file (its %s is %s, published %s); remove it",
                       job->path, sum_name(sum_is_md5(published)), sum, published);
    }
    if (errno != ENOENT)
        return gp_fail_errno(err, GP_EIO, "cannot open %s", job->path);
    job->fd = -1;
    status = part_open(job, err);
    if (status != GP_OK && job->fd < 0)
        return status; /* the part belongs to another process, or does not exist */
    for (uint32_t attempt = 0; status == GP_OK && attempt < job->options.tries; attempt++) {
        status = transfer(job, &again, err);
        if (status == GP_OK || !again || attempt + 1 == job->options.tries)
            break;
        gp_sleep_ms((int64_t)pause);
        pause = pause < 30000 ? pause * 2 : pause;
        status = GP_OK;
    }
    if (status == GP_OK && fsync(job->fd) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", job->part);
    if (status == GP_OK && rename(job->part, job->path) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", job->part, job->path);
    if (status != GP_OK && !part_is_kept(job, status))
        unlink(job->part);
    close(job->fd);
    return status;
}

gp_status gp_get_fetch(const gp_get_set *set, const gp_get_options *given, gp_error *err)
{
    gp_get_options options = given != NULL ? *given : (gp_get_options){ 0 };
    const char *mirror = set->mirror != NULL ? getenv(set->mirror) : NULL, *slash;
    const gp_curl *curl;
    char cache[PATH_MAX];
    gp_status status = GP_OK;

    if (options.url == NULL)
        options.url = mirror != NULL && mirror[0] != '\0' ? mirror : set->url;
    options.tries = options.tries == 0 ? 4 : options.tries < TRIES_MAX ? options.tries : TRIES_MAX;
    options.wait_ms = options.wait_ms == 0 ? 1000 : options.wait_ms;
    options.connect_s = options.connect_s == 0 ? 10 : options.connect_s;
    options.stall_s = options.stall_s == 0 ? 30 : options.stall_s;
    if (options.directory == NULL) {
        status = gp_cache_path(cache, sizeof(cache), "data", set->name, err);
        options.directory = cache;
    }
    if (status == GP_OK)
        status = gp_directory_make(options.directory, 0777, err);
    if (status == GP_OK)
        status = gp_curl_load(&curl, err);
    if (status != GP_OK)
        return status;
    slash = options.url[0] != '\0' && options.url[strlen(options.url) - 1] == '/' ? "" : "/";
    for (size_t i = 0; i < set->file_count && status == GP_OK; i++) {
        fetch job = { .curl = curl, .file = &set->files[i], .options = options, .mirror = set->mirror };
        const char *name = set->files[i].name, *directory = options.directory;

        if ((size_t)snprintf(job.url, sizeof(job.url), "%s%s%s", options.url, slash, name) >=
                sizeof(job.url) ||
            (size_t)snprintf(job.path, sizeof(job.path), "%s/%s", directory, name) >= sizeof(job.path) ||
            (size_t)snprintf(job.part, sizeof(job.part), "%s/%s.part", directory, name) >= sizeof(job.part))
            status = gp_fail(err, GP_ELIMIT, "the URL %s or the path %s is too long", options.url, directory);
        else
            status = file_fetch(&job, err);
    }
    if (status != GP_OK)
        rmdir(options.directory); /* an empty directory would be mistaken for the data set */
    return status;
}

gp_status gp_get(const char *name, const gp_get_options *options, gp_error *err)
{
    const char *nearest = NULL;
    unsigned distance = 0;

    for (const gp_get_set *set = gp_get_sets; set->name != NULL; set++) {
        if (strcmp(set->name, name) == 0)
            return gp_get_fetch(set, options, err);
        gp_spell_offer(name, set->name, &nearest, &distance);
    }
    return gp_fail(err, GP_EINVAL, "no downloadable data set has the name \"%s\"; %s \"%s\"", name,
                   nearest != NULL ? "did you mean" : "use, for example,",
                   nearest != NULL ? nearest : gp_get_sets[0].name);
}
