/* curl.h -- libcurl, which brings some twenty libraries and milliseconds to every start: loaded when it is needed. */
#ifndef GP_CURL_H
#define GP_CURL_H

#define CURL_DISABLE_TYPECHECK /* its macros would name the functions themselves */
#include <curl/curl.h>

#include <stdbool.h>

#include "common/base/error.h"

typedef struct gp_curl {
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    void (*easy_reset)(CURL *handle);
    CURLcode (*easy_setopt)(CURL *handle, CURLoption option, ...);
    CURLcode (*easy_perform)(CURL *handle);
    CURLcode (*easy_getinfo)(CURL *handle, CURLINFO info, ...);
    void (*easy_cleanup)(CURL *handle);
    curl_version_info_data *(*version_info)(CURLversion now);
    const char *(*easy_strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
} gp_curl;

/* gp_curl_load -- the functions, started once for the life of the process.  Any thread.
 * GP_ENOENT: there is no libcurl.  GP_EVERSION: one that is too old. */
gp_status gp_curl_load(const gp_curl **out, gp_error *err);

/* Return whether a transfer that ended with this code and HTTP status may succeed if it is repeated. */
bool gp_curl_is_transient(CURLcode code, long http);

#endif
