# The authority of a cluster, its certificates and kubeconfigs. Sourced by ./cluster; needs $dir.

# Elliptic keys (created in a millisecond), valid for a week: longer than any test cluster.
new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1" 2>>"$dir/logs/openssl.log"; }

make_authority() {
  new_key "$dir/pki/ca.key"
  openssl req -x509 -new -key "$dir/pki/ca.key" -days 7 -subj "/CN=squelch-test-ca" -out "$dir/pki/ca.crt"
  # Signs the tokens of ServiceAccounts; the API server verifies them with the same file.
  new_key "$dir/pki/service-account.key"
}

# certificate NAME SUBJECT [SAN,...]: creates pki/NAME.crt and .key, for a client and, with SANs, for a server.
certificate() {
  local name=$1 subject=$2 names=${3:-} extensions=$dir/pki/$1.ext
  new_key "$dir/pki/$name.key"
  {
    printf 'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=clientAuth%s\n' \
      "${names:+,serverAuth}"
    [[ -z $names ]] || printf 'subjectAltName=%s\n' "$names"
  } >"$extensions"
  openssl req -new -key "$dir/pki/$name.key" -subj "$subject" |
    openssl x509 -req -days 7 -CA "$dir/pki/ca.crt" -CAkey "$dir/pki/ca.key" \
      -set_serial "0x$(openssl rand -hex 8)" -extfile "$extensions" -out "$dir/pki/$name.crt" \
      2>>"$dir/logs/openssl.log"
  rm "$extensions"
}

# kubeconfig NAME FILE SERVER: writes a kubeconfig for pki/NAME. The certificates are embedded, so that the file can
# be copied.
kubeconfig() {
  local name=$1 file=$2 server=$3
  cat >"$file" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: squelch-test
  cluster:
    server: $server
    certificate-authority-data: $(base64 -w0 <"$dir/pki/ca.crt")
users:
- name: $name
  user:
    client-certificate-data: $(base64 -w0 <"$dir/pki/$name.crt")
    client-key-data: $(base64 -w0 <"$dir/pki/$name.key")
contexts:
- name: squelch-test
  context:
    cluster: squelch-test
    user: $name
current-context: squelch-test
YAML
}
