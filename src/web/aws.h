/* web/aws.h - who we are to S3, and where it is.
 *
 * The usual chain, the first that has an answer:
 *   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN;
 *   2. the profile AWS_PROFILE (or "default") in AWS_SHARED_CREDENTIALS_FILE
 *      (~/.aws/credentials), then in AWS_CONFIG_FILE (~/.aws/config);
 *   3. AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI, with the token of
 *      AWS_CONTAINER_AUTHORIZATION_TOKEN or the file AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE;
 *   4. the instance's endpoint, when it is told: AWS_EC2_METADATA_SERVICE_ENDPOINT, or
 *      credential_source = Ec2InstanceMetadata in the profile.
 * MANTA_S3_ANONYMOUS=1 signs nothing, for what everybody may read.
 *
 * Where: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url of the profile, else the
 * server of the region: AWS_REGION, AWS_DEFAULT_REGION, region of the profile, us-east-1.
 *
 * Threads: any. What was found is kept; keys that expire are fetched again five minutes
 * before they do. */
#ifndef WEB_AWS_H
#define WEB_AWS_H

#include <stdbool.h>

#include "base/status.h"

typedef struct aws_keys {
    char *id, *secret, *token; /* token NULL: none; id NULL: nothing is signed */
    char source[80]; /* where they come from, for sentences */
} aws_keys;

/* *out: give back with aws_keys_release(). MANTA_EPERM there are none, with all the
 * places that were looked at. */
manta_status aws_keys_get(aws_keys *out) MANTA_MUST_USE;
void aws_keys_release(aws_keys *k); /* overwrites what is given back */

/* Forgets what was found: the server says that it is not valid any more. */
void aws_keys_forget(void);

typedef struct aws_server {
    char *endpoint; /* "https://host:port", without a path; NULL: Amazon's own */
    char *region;
    bool virtual_host; /* the bucket is part of the host's name */
} aws_server;

/* *out: give back with aws_server_release(). MANTA_EINVAL an endpoint that is none. */
manta_status aws_server_get(aws_server *out) MANTA_MUST_USE;
void aws_server_release(aws_server *s);

#endif
