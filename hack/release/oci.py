"""Reads the image archives of hack/image: an OCI layout with one manifest, or with an image index of several."""

import hashlib
import io
import json
import sys
import tarfile

INDEX = "application/vnd.oci.image.index.v1+json"


class Image:
    """An image archive. `digest` is the one that a registry shows, `binaries` has the program of each architecture."""

    def __init__(self, path):
        try:
            with tarfile.open(path, "r:") as archive:
                self.files = {member.name: archive.extractfile(member).read() for member in archive if member.isreg()}
            (described,) = json.loads(self.files["index.json"])["manifests"]
            self.digest, self.media_type = described["digest"], described["mediaType"]
            self.name = described["annotations"]["io.containerd.image.name"]
            manifests = json.loads(self.blob(described))["manifests"] if self.media_type == INDEX else [described]
            self.binaries = {manifest["platform"]["architecture"]: self.binary(manifest) for manifest in manifests}
        except (OSError, KeyError, ValueError, tarfile.TarError) as problem:
            sys.exit(f"error: {path} is not an image archive of hack/image: {type(problem).__name__}: {problem}")

    def blob(self, descriptor):
        """The content of a blob. Its digest must be right."""
        content = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        if hashlib.sha256(content).hexdigest() != descriptor["digest"].removeprefix("sha256:"):
            raise ValueError(f"the content of {descriptor['digest']} has another digest")
        return content

    def binary(self, manifest):
        """The only file of the only layer."""
        (layer,) = json.loads(self.blob(manifest))["layers"]
        with tarfile.open(fileobj=io.BytesIO(self.blob(layer))) as files:
            return files.extractfile("squelch").read()
